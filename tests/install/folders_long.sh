# Equal sources give equal files, whichever folder they are built in: the library, the laboratory if there is one, the part of
# the PyTorch front and the command, built again from a copy of the sources and compared with those of this build.
set -euo pipefail
if [ -z "$(sed -n 's/^CMAKE_BUILD_TYPE:STRING=Release$/release/p' "$ORDO_BUILD/CMakeCache.txt")" ]; then
    echo "skip: not a release build"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CCACHE_BASEDIR # which rewrites the names of files
build() { # folder, targets...
    mkdir -p "$1"
    (cd "$ORDO_SOURCE" && cp -r CMakeLists.txt bench cli examples include lab machines python src tests tools "$1")
    cmake -S "$1" -B "$1/build" -G Ninja -DORDO_CUDA=OFF -DORDO_LAB="$ORDO_LAB" -DCMAKE_C_COMPILER="$CC" >"$work/log" 2>&1 &&
        cmake --build "$1/build" --target "${@:2}" >>"$work/log" 2>&1 || {
        cat "$work/log"
        exit 1
    }
}
one=$work/one other=$work/a/folder/with/another/name
build "$one" ordo_torch
files="lib/libordo.so bin/ordo"
[ "$ORDO_LAB" = OFF ] || files="$files lib/libordo_lab.so"
# shellcheck disable=SC2086
build "$other" ordo_torch $files
failed=0
same() {
    if ! cmp "$1" "$2"; then
        echo "FAIL ${1##*/}: depends on the folder of the build"
        failed=1
    fi
}
same "$one/build/lib/libordo_torch.so" "$other/build/lib/libordo_torch.so"
for file in $files; do
    same "$ORDO_BUILD/$file" "$other/build/$file"
done
exit $failed
