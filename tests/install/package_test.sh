# An installed ordo serves outside projects: find_package and pkg-config, shared and static, C and
# C++; it can be moved; and it exports nothing but its own names.
set -eu
for tool in cmake ninja pkg-config nm readelf "${CXX:-c++}"; do
    if ! command -v "$tool" >/dev/null; then
        echo "skip: no $tool"
        exit 77
    fi
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
outside=$ORDO_SOURCE/tests/install/outside
step() {
    echo "ok   $*"
}
fail() {
    echo "FAIL $*"
    exit 1
}

# Installed below DESTDIR, then moved: nothing may remember where it was.
DESTDIR=$tmp/stage cmake --install "$ORDO_BUILD" --prefix /opt/ordo >"$tmp/log"
mv "$tmp/stage/opt/ordo" "$tmp/ordo"
lib=$(dirname "$(find "$tmp/ordo" -name libordo.a)")
step "install"

if grep -rlF -e "$ORDO_BUILD" -e "$tmp/stage" "$tmp/ordo/include" "$lib/cmake" "$lib/pkgconfig"; then
    fail "the files above name the build's folders"
fi
[ -e "$tmp/ordo/share/ordo/machines/h200.machine" ] || fail "machines are not installed"
"$tmp/ordo/bin/ordo" --version >"$tmp/log" || fail "the installed command does not run"
step "the installed tree stands alone"

names=$(nm -D --defined-only "$lib/libordo.so" | awk '{ print $3 }')
declared=$(sed -n "s/^ORDO_API .*\\(ordo_[a-z0-9_]*\\)(.*/\\1/p" "$tmp"/ordo/include/ordo/*.h | sort -u)
difference=$(diff <(echo "$declared") <(echo "$names" | sort -u)) ||
    fail "the headers declare (<) and libordo.so exports (>):" $difference
readelf -d "$lib/libordo.so" | grep -q 'SONAME.*\[libordo\.so\.0\]' || fail "SONAME is not libordo.so.0"
step "only public names, SONAME libordo.so.0"

cmake -S "$outside" -B "$tmp/cmake" -G Ninja -DCMAKE_PREFIX_PATH="$tmp/ordo" >"$tmp/log"
cmake --build "$tmp/cmake" >"$tmp/log" || { cat "$tmp/log"; fail "find_package"; }
for program in shared static cxx; do
    env -u LD_LIBRARY_PATH "$tmp/cmake/$program" || fail "find_package, $program"
done
readelf -d "$tmp/cmake/shared" | grep -q 'NEEDED.*libordo' || fail "ordo::ordo is not the shared library"
readelf -d "$tmp/cmake/static" | grep -q 'NEEDED.*libordo' && fail "ordo::ordo_static is the shared library"
step "find_package: shared, static, C++"

export PKG_CONFIG_PATH=$lib/pkgconfig
version=$(sed -n 's/^#define ORDO_VERSION_[A-Z]* //p' "$ORDO_SOURCE/include/ordo/status.h" | paste -sd.)
[ "$(pkg-config --modversion ordo)" = "$version" ] || fail "pkg-config does not say version $version"
$CC "$outside/main.c" $(pkg-config --cflags --libs ordo) -o "$tmp/pc-shared"
env -u LD_LIBRARY_PATH "$tmp/pc-shared" || fail "pkg-config, shared: the program does not start"
readelf -d "$tmp/pc-shared" | grep -q 'NEEDED.*libordo' || fail "pkg-config: not the shared library"
rm "$lib"/libordo.so* # or the linker would prefer it
$CC "$outside/main.c" $(pkg-config --static --cflags --libs ordo) -o "$tmp/pc-static"
"$tmp/pc-static" || fail "pkg-config, static"
step "pkg-config: shared, static"
