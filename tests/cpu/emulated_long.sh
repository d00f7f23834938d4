# The bits of the CPU backend are those of tests/data/digests/cpu.txt on the other kind of machine
# too, emulated: x86-64 on an ARM host, ARM on an x86-64 one. So are those of the kernels of backend
# emulator for it, on hostile outputs.
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
programs="cpu/golden_test emulator/product_test emulator/special_test"
{
    for file in "$ORDO_SOURCE"/src/[!c]*/*.c "$ORDO_SOURCE"/src/cpu/*.c \
        "$ORDO_BUILD/generated/machine_files.c"; do
        case $other:$file in
        x86_64:*/kernels_avx2.c) build "$file" -mavx2 -mfma -mf16c ;;
        x86_64:*/kernels_avx512.c) build "$file" -mavx512f -mavx512bw -mfma -mf16c ;;
        *) build "$file" ;;
        esac
    done
} | xargs -P "$(nproc)" -I '{}' sh -c '{}'
"$other-linux-gnu-ar" rcs "$work/library.a" "$work"/*.o
for program in $programs; do
    sh -c "$(build "$ORDO_SOURCE/tests/$program.c")"
    object=$work/${program%/*}_${program#*/}.o
    "$compiler" "$object" "$work/library.a" -lm -ldl -pthread -o "$work/${program#*/}"
done

run() { # program, target
    local cpu=
    [ "$2" = generic ] || cpu="-cpu max"
    # shellcheck disable=SC2086 # two words or none
    if ! ORDO_CPU=$2 "$emulator" $cpu -L "/usr/$other-linux-gnu" "$work/$1" >"$work/said"; then
        cat "$work/said"
        echo "FAIL $other $1 $2"
        exit 1
    fi
    echo "ok   $other $1 $2"
}
for target in $targets; do
    run golden_test "$target"
    run special_test "$target"
done
last=${targets##* }
run product_test "$last" # each target of the machine
grep -q "^  $last: [0-9]* outputs" "$work/said" || { echo "FAIL $other: no outputs of $last" && exit 1; }
