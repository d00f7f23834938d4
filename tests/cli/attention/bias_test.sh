# --bias: a seeded bias and its gradient, in every command that takes a problem, and in records.
. "$ORDO_SOURCE/tests/cli/common.sh"

problem="--seq 70 --heads 4 --kv-heads 2 --dim 16 --batch 2 --dropout 0.1 --seed 4"
# shellcheck disable=SC2086
{
    last=$(digests $problem)
    printf '%s' "$last" | grep -q '"dbias"' && fail "a digest of dbias without --bias"
    for bias in shared heads sequences full; do
        now=$(digests $problem --bias $bias)
        printf '%s' "$now" | grep -qE '"dbias": "[0-9a-f]{16}"' || fail "--bias $bias: no digest of dbias"
        [ "$now" != "$last" ] || fail "--bias $bias: the digests of another"
        last=$now
        status 0 verify $problem --bias $bias --sinks --threads 1,2 --repeats 1
        prints "each sequence alone                    2   equal"
    done
    status 0 verify $problem --bias full --threads 2 --repeats 1 --sinks --write "$work/digests"
    [ "$(grep -c '^dbias ' "$work/digests")" -eq 1 ] || fail "--write: no line of dbias"
    status 0 verify $problem --bias full --threads 1 --repeats 1 --sinks --expect "$work/digests"
    sed 's/^dbias .*/dbias 0123456789abcdef/' "$work/digests" >"$work/other"
    refuses 1 "the bits differ" verify $problem --bias full --threads 1 --repeats 1 --sinks --expect "$work/other" \
        --json="$work/json"
}
status 0 verify --q-lens 40,7 --kv-lens 60,50 --seq 64 --heads 2 --dim 8 --bias sequences --threads 2 --repeats 1
prints "each sequence alone                    2   equal"
refuses 2 "--cut: expected no --bias" verify --seq 64 --bias heads --cut rows
refuses 3 "bias.on true, layout packed" run --cu-seqlens 0,5,14 --bias heads
refuses 3 "v_head_dim 136, bias.on true: backend cuda expects at most 128" plan --seq 64 --dim 136 --dtype bf16 --machine h200 --bias heads
refuses 3 "softcap 30, bias.on true: backend cuda expects one of the two" plan --seq 64 --dtype bf16 --machine h200 --softcap 30 --bias heads
status 0 plan --seq 64 --dtype bf16 --machine h200 --bias heads
refuses 3 "bias: expected 0 segments" plan --seq 1k --dropout 0.1 --segments 2 --bias heads
status 0 plan --seq 64 --bias heads --line
prints " bias=1 bias_per_head=1 "
line=$(cat "$out")
same "--plan" "$(digests --seq 64 --bias heads)" "$(digests --plan "$line")"

# A record holds it, and an audit sees one wrong bit of dbias, which is the last tensor.
status 0 run --device emulator --seq 70 --heads 2 --batch 2 --dim 16 --dtype bf16 --bias heads --mask causal \
    --save "$work/record.safetensors" --out-dir "$work/arrays"
size=$(wc -c <"$work/arrays/dbias.npy")
[ $((size - 2 * 70 * 70 * 4)) -eq 128 ] || fail "dbias.npy has $size bytes"
status 0 audit "$work/record.safetensors"
prints "o lse dq dk dv dbias"
size=$(wc -c <"$work/record.safetensors")
printf '\377' | dd of="$work/record.safetensors" bs=1 seek=$((size - 1)) conv=notrunc 2>/dev/null
status 1 audit "$work/record.safetensors"
prints "dbias"
finish
