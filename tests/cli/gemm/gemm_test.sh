# `ordo gemm`: the registry of keys and digests, rows in any batch, fields, refusals.
. "$ORDO_SOURCE/tests/cli/common.sh"
device=$("$ORDO" info | grep -q '^  cuda *yes' && echo yes)

# Every line of the registry: its key and digest, lines of cuda on the emulator too.
rows=0
while IFS='|' read -r key _ last arguments known; do
    read -r key last known <<<"$key $last $known"
    [ "$last" = - ] || continue
    rows=$((rows + 1))
    for words in "$arguments" "${arguments/--device cuda/--device emulator}"; do
        case "$words" in *"--device cuda"*) [ -n "$device" ] || continue ;; esac
        # shellcheck disable=SC2086 # a list of words
        json gemm $words
        is numeric_key "\"$key\""
        is digest_c "\"$known\""
    done
done < <(grep -v '^#' "$ORDO_SOURCE/tests/data/digests/gemm.txt")
[ "$rows" -ge 18 ] || fail "the registry has $rows lines, expected 18"

# Rows alone, in batches and in other places; on a device if there is one.
for words in "" "--form dx --dtype f16 --bias" "--form dw --out f32 --add --sections 2" "--device emulator --out f32 --bias" "--device emulator --dtype e4m3 --out f16" \
    ${device:+"--device cuda" "--device cuda --dtype e4m3 --bias" "--device cuda --form dx --sections 4" "--device cuda --form dw --out f32 --add"}; do
    # shellcheck disable=SC2086
    json gemm --m 70 --n 90 --k 64 --verify $words
    is equal true
    [ "$(field elements_compared)" -ge 1000 ] || fail "$words: $(field elements_compared) elements compared"
done

# No bit depends on the number of threads; times are taken.
status 0 gemm --m 200 --n 300 --k 100 --threads 1
cp "$out" "$work/one"
status 0 gemm --m 200 --n 300 --k 100 --threads 3
cmp -s "$out" "$work/one" || fail "other bits with three threads"
json gemm --m 8 --n 8 --k 8 --time 0.01
[ -n "$(field ms)" ] || fail "no time"
for words in "--m 0 --n 8 --k 8" "--m 4 --n 0 --k 8" "--m 4 --n 8 --k 0"; do
    # shellcheck disable=SC2086
    status 0 gemm $words --verify
done

refuses 2 "--k: missing; expected a number" gemm --m 4 --n 4
refuses 2 "sections 3: expected 1, 2, 4 or 8" gemm --m 4 --n 4 --k 48 --sections 3
refuses 2 "k 40: expected a multiple of 32 with 2 sections" gemm --m 4 --n 4 --k 40 --sections 2
refuses 2 "c_dtype bf16: expected f32 with add" gemm --m 4 --n 4 --k 4 --add
refuses 3 "dtype 0 (f32): backend emulator expects bf16 or f16" gemm --m 4 --n 4 --k 4 --dtype f32 --device emulator
refuses 3 "dtype 3 (e4m3): backend cpu expects bf16 or f16, or f32" gemm --m 4 --n 4 --k 4 --dtype e4m3
refuses 3 "b_transposed false: expected true with dtype e4m3" gemm --m 4 --n 4 --k 4 --dtype e4m3 --form dx --device cuda
refuses 2 "k 5: expected an even number" gemm --m 4 --n 4 --k 5 --dtype e4m3 --device cuda
refuses 3 "--force runs it anyway" gemm --m 16k --n 16k --k 64k
refuses 3 "this machine has" gemm --m 16m --n 16m --k 16m
refuses 2 "--threads: backend cuda has none" gemm --m 4 --n 4 --k 4 --device cuda --threads 2
[ -n "$device" ] || refuses 3 "CUDA" gemm --m 4 --n 4 --k 4 --device cuda
finish
