# --seen: drawn element masks and files, in every command that takes a problem.
. "$ORDO_SOURCE/tests/cli/common.sh"

# A causal mask of 40 rows and columns as NumPy writes it.
npy() { # type
    printf '\223NUMPY\001\000\166\000'
    printf '%-117s\n' "{'descr': '$1', 'fortran_order': False, 'shape': (40, 40), }"
    i=0
    while [ $i -lt 40 ]; do
        head -c $((i + 1)) /dev/zero | tr '\000' '\001'
        head -c $((39 - i)) /dev/zero
        i=$((i + 1))
    done
}
npy '|b1' >"$work/causal.npy"

problem="--seq 40 --heads 2 --kv-heads 1 --dim 16 --dropout 0.1 --seed 4"
# shellcheck disable=SC2086
{
    causal=$(digests $problem --mask causal)
    same "a file with the causal mask in it" "$causal" "$(digests $problem --seen "$work/causal.npy")"
    same "and under the causal mask" "$causal" "$(digests $problem --mask causal --seen "$work/causal.npy")"
    same "everything seen" "$causal" "$(digests $problem --mask causal --seen 1)"
    drawn=$(digests $problem --mask causal --seen 0.5)
    [ "$drawn" != "$causal" ] || fail "half of the elements have the digests of all"
    same "a seed of 0" "$drawn" "$(digests $problem --mask causal --seen 0.5:0)"
    [ "$drawn" != "$(digests $problem --mask causal --seen 0.5:1)" ] || fail "the seed changes nothing"
    same "the oracle" "$(digests $problem --device ref --mask causal)" \
        "$(digests $problem --device ref --seen "$work/causal.npy")"

    status 0 verify --seq 300 --heads 2 --mask causal --batch 2 --dim 16 --seen 0.3 --threads 1,2 --repeats 1
    prints "each sequence alone                    2   equal"
    status 0 verify --cu-seqlens 0,300,420 --dim 16 --seen 0.3:9 --threads 2 --repeats 1
    prints "each sequence alone                    2   equal"
    status 0 verify $problem --seen 0.5 --threads 1 --repeats 1 --write "$work/digests"
    refuses 1 "the bits differ" verify $problem --seen 0.5:1 --threads 1 --repeats 1 \
        --expect "$work/digests" --json="$work/json"
    refuses 2 "--cut: expected no --seen" verify $problem --seen 0.5 --cut rows
}

# Operations over visible pairs: 40 * 41 / 2.
status 0 bench attention --seq 40 --dim 16 --seen "$work/causal.npy" --seconds 0.01 --json
prints '"flops": 52480'
status 0 plan --seq 1k --seen 0.5 --check
prints "checked        128 tile pairs"
prints ", seen"
status 0 plan --seq 512 --seen 0.5 --line
prints " seen=1 "
status 0 run --plan "$("$ORDO" plan --seq 64 --seen 0.5 --line)" --seen 0.5
refuses 2 "--seen: the plan has an element mask" run --plan "$("$ORDO" plan --seq 64 --seen 0.5 --line)"
refuses 2 "--seen: the plan has no element mask" run --plan "$("$ORDO" plan --seq 64 --line)" --seen 0.5
refuses 3 "order shift, seen" plan --seq 512 --order shift --seen 0.5
status 0 plan --seq 512 --dim 256 --dtype bf16 --machine h200 --seen 0.5 --check
prints "checked        16 tile pairs"
wide=$("$ORDO" plan --seq 512 --dim 256 --dtype bf16 --machine h200 --seen 0.5 --line)
refuses 3 "form phase, seen: backend cuda expects chain" run --plan "${wide% key=*} form=phase key=${wide#* key=}" --seen 0.5
refuses 3 "v_head_dim 264, seen: backend cuda expects at most 256" plan --seq 512 --dim 264 --dtype bf16 --machine h200 --seen 0.5
status 0 plan --seq 512 --dtype f16 --machine h200 --seen 0.5
status 0 plan --seq 512 --dtype bf16 --machine h200 --device emulator --seen 0.5

refuses 2 "--seen and --block-mask" plan --seq 512 --seen 0.5 --block-mask chunk:128
refuses 2 "--seen 1.5: expected a probability" run --seq 40 --seen 1.5
refuses 2 "--seen 0.5:x: expected a probability" run --seq 40 --seen 0.5:x
refuses 2 "expected bool of shape (41, 41)" run --seq 41 --seen "$work/causal.npy"
npy '|u1' >"$work/other.npy"
refuses 2 "descr '|u1'" run --seq 40 --seen "$work/other.npy"
refuses 2 "is bool: expected f32" run --q "$work/causal.npy" --k "$work/causal.npy" --v "$work/causal.npy"
refuses 2 "--save: expected no --seen" run --seq 40 --seen 0.5 --save "$work/saved"
finish
