# `ordo block --device cuda` on modules that only pretend to have a GPU: everything but kernels.
. "$ORDO_SOURCE/tests/cli/common.sh"
mkdir "$work/lib"
cp "$ORDO_BUILD/tests/api/fake_module.so" "$work/lib/libordo_cuda.so"
export ORDO_CUDA_MODULE=$work/lib/libordo_cuda.so FAKE_ATTENTION=1

shape="--seq 24 --embed 64 --heads 2 --kv-heads 1 --mlp 32 --gated --backward --dropout 0.1"
refuses 3 "libordo_lab_cuda.so" block --device cuda $shape
cp "$ORDO_BUILD/tests/lab/block/block_module.so" "$work/lib/libordo_lab_cuda.so"

json block --device cuda $shape
is digests_equal true
is device '"cuda"'
field digest_dw >"$work/dw"
for more in "--overlap out" "--overlap mlp" "--overlap qkv" "--backward-bits regenerate"; do
    json block --device cuda $shape $more
    is digests_equal true
    [ "$(field digest_dw)" = "$(cat "$work/dw")" ] || fail "$more changes digest_dw"
done
json block --device cuda --seq 24 --embed 64 --heads 2 --causal --bare --backward --dropout 0.1 --rounds 5
is digests_equal true

# In segments: the modules do the work of the second stream at once, the cpu when it is awaited.
for mask in "" --causal; do
    divided="--seq 264 --embed 16 --heads 1 --mlp 8 --backward --dropout 0.1 $mask"
    json block --device cuda $divided --dropout-mode sequential
    field digest_dw >"$work/whole"
    json block --device cuda $divided --dropout-mode pipelined --segments 3
    is segments 3
    [ "$(field digest_dw)" = "$(cat "$work/whole")" ] || fail "segments $mask change digest_dw"
done
refuses 3 "dropout mode pipelined: bits of gemm cublaslt" block --device cuda $shape --gemm cublaslt \
    --dropout-mode pipelined

# Products of libordo, or of cuBLASLt.
json block --device cuda $shape --gemm cublaslt
is gemm '"cublaslt"'
is digests_equal true
for words in "" "--gemm ordo"; do
    # shellcheck disable=SC2086
    json block --device cuda $shape $words
    is gemm '"ordo"'
done
for words in "--small-tiles" "--sm-target 4" "--precision fp8 --seq 32"; do
    refuses 3 "expected" block --device cuda ${shape/--seq 24/} --seq 32 --gemm ordo ${words/ --seq 32/}
done

# The paper's generator: other bits, the same in all modes. At head size 128 attention makes those of
# experiments inside.
json block --device cuda $shape --generator compare --rounds 3
is digests_equal true
[ "$(grep -c '"mode": ' "$out")" -eq 4 ] || fail "expected four modes"
[ "$(field digest_dw)" != "$(cat "$work/dw")" ] || fail "the generator compare changes nothing"
refuses 3 "dropout mode fused" block --device cuda $shape --generator compare --dropout-mode fused
refuses 3 "dropout mode pipelined" block --device cuda $shape --generator compare --dropout-mode pipelined
fits="--batch 2 --seq 136 --embed 128 --heads 1 --mlp 8 --backward --dropout 0.1"
for more in "--generator compare" "--rounds 3"; do
    # shellcheck disable=SC2086
    json block --device cuda $fits --causal $more
    is digests_equal true
    grep -q '"mode": "fused"' "$out" || fail "$more: not fused"
done
refuses 3 "with 8 bits; head size 128, bits 4" block --device cuda $fits --rounds 3 --bits 4 --dropout-mode fused

# Beside products: the same bits, of every generator; what has no room is refused by name.
placed="$shape --placement beside"
for more in "" "--overlap out" "--overlap qkv" "--backward-bits regenerate"; do
    # shellcheck disable=SC2086
    json block --device cuda $placed $more
    is digests_equal true
    is placement '"beside"'
    [ "$(field digest_dw)" = "$(cat "$work/dw")" ] || fail "placement beside $more changes digest_dw"
done
json block --device cuda $placed --generator compare --rounds 5
is digests_equal true
json block --device cuda $placed --interference --trace --time 0.01
grep -q '"same_words": true' "$out" || fail "placement beside: the trace made other words"
grep -q '"room_ms": 0\.[0-9]*[1-9]' "$out" || fail "placement beside: no time of the product with room"
refuses 3 "placement beside: kernels of gemm cublaslt leave no room" block --device cuda $placed --gemm cublaslt
refuses 3 "placement beside: dropout mode pipelined" block --device cuda $placed --dropout-mode pipelined
refuses 3 "placement beside: bits 4" block --device cuda $placed --bits 4
refuses 3 "placement beside: only backend cuda" block $placed

# Measurements.
json block --device cuda $shape --interference --trace --time 0.01
for name in product_ms bits_ms product_beside_ms bits_beside_ms then_ms both_ms attention_ms dropping_ms fused_ms \
    backward_ms backward_dropping_ms bits_slowdown inside; do
    grep -q "\"$name\": [0-9.e-]" "$out" || fail "no $name"
done
grep -q '"same_words": true' "$out" || fail "the trace made other words"
status 0 block --device cuda $shape --interference --trace --time 0.01
prints "of the bits is hidden"
prints "8448 warps on 132 SMs"

refuses 3 "precision f32: backend cuda multiplies bf16 and fp8" block --device cuda $shape --precision f32
refuses 2 "the products of cuda need multiples of 8" block --device cuda --seq 9 --embed 128 --heads 2
finish
