# --block-mask: chunks, documents and files, in every command that takes a problem.
. "$ORDO_SOURCE/tests/cli/common.sh"

problem="--seq 300 --heads 2 --kv-heads 1 --dim 16 --mask causal --dropout 0.1 --seed 4"
# shellcheck disable=SC2086
{
    causal=$(digests $problem)
    same "a chunk as long as the sequence" "$causal" "$(digests $problem --block-mask chunk:300)"
    same "one document" "$causal" "$(digests $problem --block-mask documents:300)"
    chunks=$(digests $problem --block-mask chunk:100)
    [ "$chunks" != "$causal" ] || fail "chunks of 100 have the digests of the causal mask"
    same "documents and chunks" "$chunks" "$(digests $problem --block-mask documents:100,100,100)"
    i=0
    while [ $i -lt 300 ]; do
        echo "$((i / 100 * 100)) $i"
        i=$((i + 1))
    done >"$work/rows"
    same "a file" "$chunks" "$(digests $problem --block-mask "$work/rows")"
    full=$(echo "$problem" | sed 's/causal/full/')
    same "a file with the causal mask in it" "$chunks" "$(digests $full --block-mask "$work/rows")"
    same "the oracle" "$(digests $problem --device ref --block-mask chunk:100)" \
        "$(digests $full --device ref --block-mask "$work/rows")"

    status 0 verify $problem --batch 2 --block-mask chunk:70 --threads 1,2 --repeats 1
    prints "each sequence alone                    2   equal"
    status 0 verify --cu-seqlens 0,300,420 --mask causal --dim 16 --block-mask chunk:70 --threads 2 --repeats 1
    prints "each sequence alone                    2   equal"
    status 0 verify $problem --block-mask chunk:70 --threads 1 --repeats 1 --write "$work/digests"
    refuses 1 "the bits differ" verify $problem --block-mask chunk:80 --threads 1 --repeats 1 \
        --expect "$work/digests" --json="$work/json"
    refuses 2 "--cut: expected no --block-mask" verify $problem --block-mask chunk:70 --cut rows
}

# Operations over visible pairs: 3 chunks of 100 * 101 / 2.
status 0 bench attention --seq 300 --dim 16 --mask causal --block-mask chunk:100 --seconds 0.01 --json
prints '"flops": 969600'
status 0 plan --seq 1k --mask causal --block-mask chunk:256 --check
prints "checked        24 tile pairs"
prints "block mask of 16 entries"
! lab || prints "predicted      unknown"
status 0 plan --seq 256,512 --block-mask chunk:128 --line
prints "blocks=2 "
prints "blocks=4 "
refuses 3 "order shift, block mask" plan --seq 512 --order shift --block-mask chunk:128
status 0 plan --seq 512 --dtype bf16 --machine h200 --block-mask chunk:128 --check
refuses 3 "head_dim 192, v_head_dim 192, block mask" plan --seq 512 --dim 192 --dtype bf16 --machine h200 --block-mask chunk:128
refuses 3 "segments 2, block mask" plan --seq 512 --dropout 0.1 --segments 2 --block-mask chunk:128

refuses 2 "chunk:0: expected columns" run --seq 300 --block-mask chunk:0
refuses 2 "documents:a: expected lengths" run --seq 300 --block-mask documents:a
refuses 2 "add up to 299: expected 300 rows" run --seq 300 --block-mask documents:100,199
refuses 2 "expected 300 rows and 310 columns" run --seq 300 --kv-seq 310 --block-mask documents:300
refuses 2 "chunks:5: expected chunk:N" run --seq 300 --block-mask chunks:5
refuses 2 "rows: more than 299 lines" run --seq 299 --block-mask "$work/rows"
refuses 2 "rows: 300 lines: expected one for each of 301" run --seq 301 --block-mask "$work/rows"
for line in "5 300" "-1 3" "3" "3 4 5" "a b" "0 -2"; do
    { head -6 "$work/rows" && echo "$line" && tail -293 "$work/rows"; } >"$work/wrong"
    refuses 2 "wrong, line 7: expected the first and the last column" run --seq 300 --block-mask "$work/wrong"
done
finish
