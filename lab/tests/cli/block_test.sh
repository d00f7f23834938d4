# `ordo block`: the same digests in every dropout mode, the fields people rely on, refusals.
. "$ORDO_SOURCE/tests/cli/common.sh"

small="--seq 140 --embed 32 --heads 4 --mlp 48 --gated --causal --backward --seed 5"
same() { # name: its value is that of the run before
    [ "$(field "$1")" = "$(cat "$work/$1")" ] || fail "$1 is $(field "$1"), expected $(cat "$work/$1")"
}

# All modes at once; the command compares.
json block $small --dropout 0.1
is digests_equal true
is device '"cpu"'
is head_dim 8
is beside '"all"'
is keep_bits_bytes 18432
is segments 3
is bits_bytes 45056
for name in digest_o digest_dx digest_dw; do
    field $name >"$work/$name"
    [ "$(wc -c <"$work/$name")" -eq 19 ] || fail "$name is $(field $name), expected 16 digits"
done
[ "$(grep -c '"mode": ' "$out")" -eq 6 ] || fail "expected six modes"
grep -q '"repeats": false' "$out" && fail "a mode does not repeat itself"

# Every mode by itself, with any number of threads, beside any product, with bits made again.
for mode in fused sequential "overlapped --overlap qkv" "overlapped --overlap out" "overlapped --overlap up" \
    "overlapped --overlap down" "overlapped --overlap mlp" \
    "pipelined --segments 2" "overlapped --backward-bits regenerate" "sequential --backward-bits regenerate"; do
    json block $small --dropout 0.1 --threads 3 --dropout-mode $mode
    is digests_equal null
    for name in digest_o digest_dx digest_dw; do
        same $name
    done
done
json block $small --dropout 0.1 --dropout-mode fused --check
is digests_equal true
same digest_o

status 0 block $small --dropout 0.1 --dropout-mode overlapped --beside qkv
grep -q "note: --beside will not be accepted by the next version; expected --overlap" "$err" || fail "--beside: no note"

# Other bits without dropout, with another seed or offset, in another precision.
for other in "--dropout 0" "--dropout 0.1 --offset 1" "--dropout 0.1 --precision f32" "--dropout 0.1 --kv-heads 2"; do
    json block $small $other
    [ "$(field digest_o)" != "$(cat "$work/digest_o")" ] || fail "$other changes nothing"
done
json block --seq 40 --embed 32 --heads 4
is p_used 0
[ -z "$(field digest_dx)" ] || fail "digest_dx without --backward"

# Times.
json block $small --dropout 0.1 --time 0.01
[ "$(grep -c '"ms": ' "$out")" -eq 6 ] || fail "expected six times"
status 0 block $small --dropout 0.1 --rounds 5
prints "are an experiment"
prints "same digests"

# Refusals name what is wrong.
refuses 2 "--heads: missing" block --seq 8 --embed 8
refuses 2 "heads 3: expected a divisor of embed 32" block --seq 8 --embed 32 --heads 3
refuses 2 "kv_heads 3: expected a divisor of heads 4" block --seq 8 --embed 32 --heads 4 --kv-heads 3
refuses 2 "dropout 1.5" block --seq 8 --embed 32 --heads 4 --dropout 1.5
refuses 2 "--dropout: missing or 0" block --seq 8 --embed 32 --heads 4 --dropout-mode fused
refuses 2 "keep_bits_bytes 0: dropout mode" block $small --dropout 0.1 --dropout-mode sequential --keep-bits-memory 0
status 0 block $small --dropout 0.1 --dropout-mode fused --keep-bits-memory 0
json block $small --dropout 0.1 --dropout-mode pipelined --rounds 5 --check
is digests_equal true
refuses 2 "segments 4" block $small --dropout 0.1 --dropout-mode overlapped --segments 4
refuses 3 "precision fp8: backend cpu multiplies bf16 and f32" block $small --precision fp8
for more in "--generator compare" "--generator compare --rounds 3 --kv-heads 2" "--rounds 3" "--rounds 5 --bits 4"; do
    # shellcheck disable=SC2086
    json block $small --dropout 0.1 $more
    is digests_equal true
    grep -q '"mode": "fused"' "$out" || fail "$more: not fused"
done
refuses 3 "dropout mode pipelined: the bits of a segment" block $small --dropout 0.1 --generator compare \
    --dropout-mode pipelined
refuses 3 "interference is measured on cuda" block $small --dropout 0.1 --interference
if ! "$ORDO" info | grep -q '^  cuda *yes'; then
    refuses 3 "" block $small --dropout 0.1 --device cuda
fi
refuses 3 "--force" block --seq 4k --embed 8k --heads 64
finish
