# The bits of the CPU backend are those of tests/data/digests/cpu.txt on the other kind of machine
# too, emulated: x86-64 on an ARM host, ARM on an x86-64 one.
#
# Wants Debian's gcc-x86-64-linux-gnu (or gcc-aarch64-linux-gnu) and qemu-user; skipped without.
set -euo pipefail
case $(uname -m) in
aarch64) other=x86_64 targets="generic avx2" ;;
x86_64) other=aarch64 targets="generic neon" ;;
*) exit 77 ;;
esac
compiler=$other-linux-gnu-gcc
emulator=qemu-$other
if ! command -v "$compiler" "$emulator" >/dev/null; then
    echo "skip: no $compiler or no $emulator"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build() { # file, more options...
    file=$1
    shift
    echo "$compiler -std=c17 -D_POSIX_C_SOURCE=200809L -DORDO_BUILDING -DNDEBUG -O2" \
        "-ffp-contract=off -I$ORDO_SOURCE/include -I$ORDO_SOURCE/src -I$ORDO_SOURCE/tests" "$@" \
        "-c $file -o $work/$(basename "$(dirname "$file")")_$(basename "$file" .c).o"
}
{
    for file in "$ORDO_SOURCE"/src/[!c]*/*.c "$ORDO_SOURCE"/src/cpu/*.c \
        "$ORDO_BUILD/generated/machine_files.c" "$ORDO_SOURCE/tests/cpu/golden_test.c"; do
        case $other:$file in
        x86_64:*/kernels_avx2.c) build "$file" -mavx2 -mfma -mf16c ;;
        x86_64:*/kernels_avx512.c) build "$file" -mavx512f -mavx512bw -mfma -mf16c ;;
        *) build "$file" ;;
        esac
    done
} | xargs -P "$(nproc)" -I '{}' sh -c '{}'
"$compiler" "$work"/*.o -lm -ldl -pthread -o "$work/golden"
for target in $targets; do
    cpu=
    [ "$target" = generic ] || cpu="-cpu max"
    # shellcheck disable=SC2086 # two words or none
    if ! ORDO_CPU=$target \
        "$emulator" $cpu -L "/usr/$other-linux-gnu" "$work/golden" >"$work/said"; then
        cat "$work/said"
        echo "FAIL $other $target"
        exit 1
    fi
    echo "ok   $other $target"
done
