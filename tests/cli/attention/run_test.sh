# ordo run: digests that repeat, and that change with what may change them.
. "$ORDO_SOURCE/tests/cli/common.sh"

one=$(digests --device ref --dim 16 --seq 33 --heads 2 --mask causal --seed 5)
same "a second run" "$one" "$(digests --device ref --dim 16 --seq 33 --heads 2 --mask causal --seed 5)"
[ "$(digests --device ref --dim 16 --seq 33 --heads 2 --mask causal --seed 6)" = "$one" ] && fail "the seed is ignored"
for name in o lse dq dk dv; do
    printf '%s' "$one" | grep -qE "\"$name\": \"[0-9a-f]{16}\"" || fail "no digest of $name"
done
printf '%s' "$(digests --device ref --seq 9 --pass forward)" | grep -q '"dq"' && fail "forward: a digest of dq"
printf '%s' "$(digests --device ref --seq 9 --pass backward)" | grep -q '"lse"' && fail "backward: one of lse"

# A sequence has the same bits packed, padded or alone.
json run --device ref --dim 16 --heads 2 --mask causal --seq 20
alone=$(field digests | tr -d ' \n')
json run --device ref --dim 16 --heads 2 --mask causal --cu-seqlens 0,20,33 --sequences
packed=$(field sequences | tr -d ' \n')
json run --device ref --dim 16 --heads 2 --mask causal --q-lens 20,13 --kv-lens 20,13 --sequences
padded=$(field sequences | tr -d ' \n')
[ "$packed" = "$padded" ] || fail "packed and padded digests differ"
case $packed in "[$alone"*) ;; *) fail "the first sequence differs from itself alone" ;; esac

# Sinks change every result and have a gradient of their own, one per sequence and head.
sunk=$(digests --device ref --dim 16 --seq 33 --heads 2 --mask causal --seed 5 --sinks)
is sinks true
printf '%s' "$sunk" | grep -qE '"dsink": "[0-9a-f]{16}"' || fail "--sinks: no digest of dsink"
printf '%s' "$one" | grep -q '"dsink"' && fail "a digest of dsink without --sinks"
for name in o lse dq dk dv; do
    of() { printf '%s' "$1" | grep -oE "\"$name\": \"[0-9a-f]{16}\""; }
    [ "$(of "$sunk")" = "$(of "$one")" ] && fail "--sinks leaves $name as it is"
done
status 0 run --device cpu --seq 33 --heads 2 --batch 3 --sinks --out-dir "$work/sinks"
size=$(wc -c <"$work/sinks/dsink.npy")
[ $((size % 64)) -eq 24 ] || fail "dsink.npy has $size bytes: expected a header and 6 numbers"

for dtype in f32 bf16 f16; do
    json run --device ref --seq 12 --dim 8 --v-dim 4 --heads 4 --kv-heads 2 --dtype $dtype \
        --dropout 0.1 --alibi --softcap 20 --window 6,-1
done
json run --device cpu --seq 8,12 --threads 1,2
[ "$(grep -c '"digests":' "$out")" -eq 4 ] || fail "lists: expected 4 results"
# Digests of each of many sequences cost as much as the digest of all, not as their square.
(ulimit -t 60 && exec "$ORDO" run --device ref --batch 256k --seq 1 --dim 1 --pass forward --sequences >"$out" 2>"$err") ||
    fail "--sequences of a large batch takes too long"
status 0 run --device ref --seq 8
prints "plan       ordo-plan"

# Segments of rows: the digests of bits made inside, whatever their number.
drops="--device cpu --seq 300 --heads 2 --dim 16 --v-dim 24 --mask causal --dropout 0.1"
# shellcheck disable=SC2086 # a list of words
{
    json run $drops --dropout-mode fused
    inside=$(field digests)
    for many in "--segments 2" "--segments 5" "--keep-bits-memory 20000"; do
        json run --plan "$(line $drops $many)"
        [ "$(field digests)" = "$inside" ] || fail "$many: other digests"
        grep -q '"dropout_mode": "pipelined"' "$out" || fail "$many: not pipelined"
    done
    for rows in 60 300 600 1000; do # not all of them can have eight
        status 0 run --device cpu --seq $rows --heads 2 --dim 16 --dropout 0.2 --dropout-mode pipelined
        prints "dropout    pipelined, "
    done
    status 0 run --plan "$(line $drops --segments 5)" --dropout-mode pipelined
    prints "dropout    pipelined, 5 segments, 12288 B of keep bits"
    refuses 2 "segments 6: 300 rows in multiples of 64 are 5 segments" plan $drops --segments 6
    refuses 2 "keep_bits_memory 999: the keep bits of two segments" plan $drops --keep-bits-memory 999
    refuses 2 "--keep-bits-memory 0: expected" plan $drops --keep-bits-memory 0
    status 0 plan $drops --mask-memory 20000 --line
    grep -q "note: --mask-memory will not be accepted by the next version; expected --keep-bits-memory" "$err" ||
        fail "--mask-memory: no note"
    [ "$(cat "$out")" = "$(line $drops --keep-bits-memory 20000)" ] || fail "--mask-memory: another plan"
    two=$(line $drops --segments 2)
    refuses 2 "--dropout-mode: the plan has segments; expected pipelined" run --plan "$two" --dropout-mode fused
    refuses 2 "--dropout-mode pipelined: the plan has no segments" run --plan "$(line $drops)" --dropout-mode pipelined
    refuses 2 "--backward-bits: with dropout mode pipelined" run --plan "$two" --backward-bits keep
    refuses 2 "--dropout-mode: expected only with --dropout above 0" run --device cpu --seq 600 --dropout-mode pipelined
    refuses 3 "segments 2, layout packed" plan --device cpu --cu-seqlens 0,200,300 --dropout 0.1 --segments 2
}

refuses 3 "floating-point operations" run --device ref --seq 64k --heads 4
refuses 3 "of memory" run --device ref --seq 1m --heads 10000 --dim 256
refuses 2 "--pass sideways: expected" run --seq 8 --pass sideways
# A size that no plan has is named as such, however large the tensors would be.
for command in plan run "bench attention" verify; do
    # shellcheck disable=SC2086
    refuses 2 "head_dim 1048576: expected" $command --seq 64k --dim 1m
done

# A target of another machine, or of none: the message lists those that run here, and they do.
for word in neon avx512 nonsense; do
    ORDO_CPU=$word "$ORDO" run --seq 8 --device cpu >"$out" 2>"$err" && continue
    refused=$(sed -n "s/.*ORDO_CPU=$word: not a target of this machine; expected //p" "$err")
    [ -n "$refused" ] || fail "ORDO_CPU=$word: no list of targets"
    ORDO_CPU=$word "$ORDO" run --seq 8 --device emulator --dtype bf16 >"$out" 2>"$err"
    [ $? -eq 3 ] && grep -q "ORDO_CPU=$word: not a target" "$err" || fail "ORDO_CPU=$word on the emulator"
    for target in $(echo "$refused" | sed 's/,//g; s/ or / /'); do
        ORDO_CPU=$target "$ORDO" run --seq 8 --device cpu >"$out" 2>"$err" ||
            fail "ORDO_CPU=$word names $target, which does not run"
    done
done
if "$ORDO" info | grep -q '^  cpu *no'; then
    refuses 3 "backend cpu" run --seq 8 --device cpu
fi
if "$ORDO" info | grep -q '^  cuda *no'; then
    refuses 3 "backend cuda" run --seq 8 --device cuda
fi
finish
