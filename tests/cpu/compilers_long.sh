# The bits of the CPU backend are those of tests/data/digests/cpu.txt, whichever compiler built it
# and however hard that tried: src/cpu built anew, the rest taken from the library at hand. What `make
# test` (-O3) and `make test-asan` (-O1) compile is not compiled again.
#
#   COMPILERS, LEVELS   what to try, if not all that is below; a comma joins options
set -euo pipefail
if grep -q '^ORDO_SANITIZE:STRING=.' "$ORDO_BUILD/CMakeCache.txt"; then
    echo "skip: a sanitized library links with its own compiler only"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

commands() { # compiler, level: one line per file
    for file in "$ORDO_SOURCE"/src/cpu/*.c "$ORDO_SOURCE"/tests/cpu/golden_test.c; do
        case $(uname -m):$file in # as CMakeLists.txt has it
        x86_64:*/kernels_avx2.c) own="-mavx2 -mfma -mf16c" ;;
        x86_64:*/kernels_avx512.c) own="-mavx512f -mavx512bw -mfma -mf16c" ;;
        *) own= ;;
        esac
        echo "$1 -std=c17 -D_POSIX_C_SOURCE=200809L -DORDO_BUILDING -ffp-contract=off ${2//,/ } $own" \
            "-I$ORDO_SOURCE/include -I$ORDO_SOURCE/src -I$ORDO_SOURCE/tests" \
            "-c $file -o $work/$(basename "$file" .c).o"
    done
}

tried=0
for compiler in ${COMPILERS-gcc clang}; do
    if ! command -v "$compiler" >/dev/null; then
        echo "skip $compiler: not here"
        continue
    fi
    case $compiler in
    *clang*) levels="-O0 -O1 -Os -O2 -O3" ;;
    *) levels="-O0 -Os -O2 -O2,-ftree-vectorize,-funroll-loops -O3,-fno-strict-aliasing,-fwrapv" ;;
    esac
    for level in ${LEVELS-$levels}; do
        commands "$compiler" "$level" | xargs -P "$(nproc)" -I '{}' sh -c '{}'
        # An object that is given takes the place of the library's.
        "$compiler" "$work"/*.o "$ORDO_BUILD/lib/libordo.a" -lm -ldl -pthread -o "$work/golden"
        if ! "$work/golden" >"$work/said"; then
            cat "$work/said"
            echo "FAIL $compiler $level"
            exit 1
        fi
        echo "ok   $compiler $level: $(grep -c '^  [a-z]' "$work/said") targets"
        tried=$((tried + 1))
    done
done
[ $tried -gt 0 ] || exit 77
