# The command on a real GPU: every bit equal in every way it runs. Skipped where there is none.
. "$(dirname "$0")/common.sh"
"$ORDO" info | grep -q '^  cuda *yes' || { echo "no device of compute capability 9.0"; exit 77; }

verify() {
    status 0 verify --device cuda --dtype bf16 --repeats 5 "$@"
    prints "every bit equal"
}
for dim in 64 128; do
    verify --dim $dim --seq 1k --batch 2 --heads 4 --mask causal
    verify --dim $dim --seq 1000 --kv-seq 1500 --batch 2 --heads 8 --kv-heads 2 --mask causal
    verify --dim $dim --seq 1500 --kv-seq 1000 --batch 3 --heads 2 --kv-heads 1
    verify --dim $dim --seq 777 --kv-seq 500 --heads 3 --mask causal-top-left
    verify --dim $dim --seq 2k --heads 2 --order shift --group 16
    verify --dim $dim --seq 2k --heads 2 --mask causal --order symmetric --group 8
    verify --dim $dim --seq 1 --kv-seq 3k --heads 5 --mask causal
done
verify --dim 64 --seq 1 --batch 300 --heads 220 # more than 65535 tiles

# The digests of ordo run and of ordo bench are the same.
json run --device cuda --dtype bf16 --seq 1k --heads 2 --dim 128 --mask causal
grep -o '"[a-z]*": "[0-9a-f]\{16\}"' "$out" >"$work/run"
json bench attention --device cuda --dtype bf16 --seq 1k --heads 2 --dim 128 --mask causal
grep -o '"[a-z]*": "[0-9a-f]\{16\}"' "$out" | cmp -s - "$work/run" || fail "bench: other digests"
finish
