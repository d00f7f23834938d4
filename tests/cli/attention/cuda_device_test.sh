# The command on a real GPU: every bit equal in every way it runs. Skipped where there is none.
. "$ORDO_SOURCE/tests/cli/common.sh"
"$ORDO" info | grep -q '^  cuda *yes' || { echo "no device of compute capability 9.0"; exit 77; }

verify_type() {
    type=$1
    shift
    status 0 verify --device cuda --dtype "$type" --repeats 5 "$@"
    prints "every bit equal"
}
verify() {
    verify_type bf16 "$@"
}
for dim in 64 128; do
    verify --dim $dim --seq 1k --batch 2 --heads 4 --mask causal
    verify --dim $dim --seq 1000 --kv-seq 1500 --batch 2 --heads 8 --kv-heads 2 --mask causal
    verify --dim $dim --seq 1500 --kv-seq 1000 --batch 3 --heads 2 --kv-heads 1
    verify --dim $dim --seq 777 --kv-seq 500 --heads 3 --mask causal-top-left
    for order in "--order shift --group 16" "--mask causal --order symmetric --group 8"; do
        # shellcheck disable=SC2086 # a list of words
        status 0 verify --plan "$(line --device cuda --dtype bf16 --dim $dim --seq 2k --heads 2 $order)" --repeats 5
        prints "every bit equal"
    done
    verify --dim $dim --seq 1 --kv-seq 3k --heads 5 --mask causal
done
verify --dim 64 --seq 1 --batch 300 --heads 220 # more than 65535 tiles

# The problems of the registry and drawn ones, with the bits that are known.
status 0 scan --device all --seconds 10
prints "equal      device 0: every bit of "
cat "$out"

# Sequences that are cut, as tools/demo shows them.
for cut in rows columns decode; do
    verify --dim 64 --seq 300 --heads 2 --mask causal --dropout 0.1 --cut $cut
    verify --dim 128 --seq 300 --heads 4 --kv-heads 2 --mask causal --cut $cut
done

# Every layout, rule and way of dropping; verify compares the modes of dropout, too.
for type in bf16 f16; do
    for dim in 40 64 96 128 192 256; do
        verify_type $type --dim $dim --seq 700 --batch 2 --heads 4 --kv-heads 2 --mask causal \
            --window 200,0 --dropout 0.1
        verify_type $type --dim $dim --cu-seqlens 0,300,300,1000,1001 --heads 4 --mask causal \
            --softcap 30 --dropout 0.17
        verify_type $type --dim $dim --q-lens 5,300,0 --kv-lens 9,200,40 --seq 300 --heads 2 --alibi \
            --dropout 0.1 --rounds 10
    done
done
verify --dim 128 --seq 500 --heads 2 --dropout 0.1 --keying fa2
for type in bf16 f16; do # by phases
    verify_type $type --dim 512 --seq 700 --batch 2 --heads 4 --kv-heads 2 --mask causal --window 200,0
    verify_type $type --dim 320 --cu-seqlens 0,300,300,1000,1001 --heads 4 --mask causal --softcap 30
done

# The digests of ordo run and of ordo bench are the same.
json run --device cuda --dtype bf16 --seq 1k --heads 2 --dim 128 --mask causal
grep -o '"[a-z]*": "[0-9a-f]\{16\}"' "$out" >"$work/run"
json bench attention --device cuda --dtype bf16 --seq 1k --heads 2 --dim 128 --mask causal
grep -o '"[a-z]*": "[0-9a-f]\{16\}"' "$out" | cmp -s - "$work/run" || fail "bench: other digests"
finish
