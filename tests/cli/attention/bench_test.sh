# ordo bench: what it counts is exact; what it times is there.
. "$ORDO_SOURCE/tests/cli/common.sh"

quick="--seconds 0.01 --threads 1"

# value NAME: the first of that name in the results
value() {
    sed -n "s/^ *\"$1\": \"*\([^\",]*\)\"*,*\$/\1/p" "$out" | head -1
}
counts() { # forward, backward, args...
    forward=$1
    backward=$2
    shift 2
    # shellcheck disable=SC2086 # a list of words
    json bench attention $quick --pass forward "$@"
    [ "$(value flops)" = "$forward" ] || fail "$*: $(value flops) operations, expected $forward"
    # shellcheck disable=SC2086 # a list of words
    json bench attention $quick --pass backward "$@"
    [ "$(value flops)" = "$backward" ] || fail "$*: $(value flops) operations, expected $backward"
}
# 2 operations x pairs x heads x (dim + v_dim); backward 3 dim + 2 v_dim
counts $((2 * 64 * 3 * 16)) $((2 * 64 * 3 * 40)) --seq 8 --heads 3 --dim 8
counts $((2 * 10 * 16)) $((2 * 10 * 40)) --seq 4 --dim 8 --mask causal
counts $((2 * 26 * 12)) $((2 * 26 * 32)) --seq 4 --kv-seq 8 --dim 8 --v-dim 4 --mask causal
counts $((2 * 10 * 16)) $((2 * 10 * 40)) --seq 4 --kv-seq 8 --dim 8 --mask causal-top-left
counts $((2 * 9 * 16)) $((2 * 9 * 40)) --seq 4 --dim 8 --mask causal --window 2,0
counts $((2 * 10 * 16)) $((2 * 10 * 40)) --seq 4 --dim 8 --window 1,1
counts $((2 * 13 * 16)) $((2 * 13 * 40)) --cu-seqlens 0,2,6 --dim 8 --mask causal
counts $((2 * 6 * 16)) $((2 * 6 * 40)) --q-lens 2,1 --kv-lens 2,2 --seq 4 --dim 8

# shellcheck disable=SC2086 # a list of words
status 0 bench attention --seq 64,128 --mask causal --seconds 0.02 --threads 1,2
prints "peak:"
prints "f32, causal, 64 x 64"
prints "of peak"
[ "$(grep -c '^  forward ' "$out")" -eq 4 ] || fail "expected 4 rows forward"
[ "$(grep -c '^  backward ' "$out")" -eq 4 ] || fail "expected 4 rows backward"

# The digests are those of ordo run, on any number of threads.
json bench attention --seq 100 --dropout 0.1 --dtype bf16 --seconds 0.01 --threads 2 --seed 4
for name in o dq dk dv lse; do
    value $name
done >"$work/bench"
json run --seq 100 --dropout 0.1 --dtype bf16 --seed 4
for name in o dq dk dv lse; do
    value $name
done | cmp -s - "$work/bench" || fail "digests are not those of ordo run"
[ "$(value threads)" = null ] || fail "threads"

for name in gflops of_peak workspace_bytes; do
    json bench attention --seq 64 --device cpu --seconds 0.01
    printf '%s' "$(value $name)" | grep -qE '^[0-9.e+-]+$' || fail "no $name"
done
json bench attention --device ref --seq 16 --dim 8 --seconds 0.01

refuses 2 "expected what to measure: attention" bench --seq 8
refuses 2 "'frobnicate': expected an option" bench frobnicate --seq 8
refuses 2 "--seconds 0: expected" bench attention --seq 8 --seconds 0
refuses 2 "--seconds -1: expected" bench attention --seq 8 --seconds -1
refuses 2 "--seq: missing" bench attention
refuses 3 "floating-point operations" bench attention --device ref --seq 64k
finish
