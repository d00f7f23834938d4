# An installed ordo serves outside projects: find_package and pkg-config, shared and static, C and
# C++; it can be moved; and it exports nothing but its own names.
. "$ORDO_SOURCE/tests/common.sh" cmake ninja pkg-config nm readelf "${CXX:-c++}"
set -e
outside=$ORDO_SOURCE/tests/install/outside
step() {
    echo "ok   $*"
}
fail() {
    echo "FAIL $*"
    exit 1
}

# Installed below DESTDIR, then moved: nothing may remember where it was.
DESTDIR=$work/stage cmake --install "$ORDO_BUILD" --prefix /opt/ordo >"$work/log"
mv "$work/stage/opt/ordo" "$work/ordo"
lib=$(dirname "$(find "$work/ordo" -name libordo.a)")
step "install"

if grep -rlF -e "$ORDO_BUILD" -e "$work/stage" "$work/ordo/include" "$lib/cmake" "$lib/pkgconfig"; then
    fail "the files above name the build's folders"
fi
[ -e "$work/ordo/share/ordo/machines/h200.machine" ] || fail "machines are not installed"
"$work/ordo/bin/ordo" --version >"$work/log" || fail "the installed command does not run"
step "the installed tree stands alone"

# Public names, and of libordo those that libordo_lab uses beside them; no more.
exports() { # library, names of another
    nm -D --defined-only "$lib/$1.so" | awk '{ print $3 }' | sort -u | comm -23 - <(echo "${2-}")
}
declared() { # headers
    sed -n "s/^ORDO_API .*\\(ordo_[a-z0-9_]*\\)(.*/\\1/p" "$@" | sort -u
}
used=
[ "$ORDO_LAB" = OFF ] || used=$(nm -D --undefined-only "$lib/libordo_lab.so" | awk '/ ordo_/ { print $2 }' | sort -u)
internal=$(comm -23 <(echo "$used") <(declared "$work"/ordo/include/ordo/*.h))
difference=$(diff <(declared "$work"/ordo/include/ordo/*.h) <(exports libordo "$internal")) ||
    fail "the headers declare (<) and libordo.so exports (>):" $difference
libraries=libordo programs="shared static cxx"
if [ "$ORDO_LAB" = ON ]; then
    libraries="$libraries libordo_lab" programs="$programs lab lab_static"
    difference=$(diff <(declared "$work"/ordo/include/ordo/lab/*.h) <(exports libordo_lab)) ||
        fail "the headers declare (<) and libordo_lab.so exports (>):" $difference
fi
for name in $libraries; do
    readelf -d "$lib/$name.so" | grep -q "SONAME.*\[$name\.so\.0\]" || fail "SONAME is not $name.so.0"
done
readelf -d "$lib/libordo.so" | grep -q 'NEEDED.*libordo_lab' && fail "libordo needs libordo_lab"
nm -D --undefined-only "$lib/libordo.so" | grep -q secure_getenv ||
    fail "a program with the rights of another user would load what ORDO_CUDA_MODULE names"
step "only public names and what libordo_lab uses; SONAMEs"

cmake -S "$outside" -B "$work/cmake" -G Ninja -DCMAKE_PREFIX_PATH="$work/ordo" >"$work/log"
cmake --build "$work/cmake" >"$work/log" || { cat "$work/log"; fail "find_package"; }
for program in $programs; do
    env -u LD_LIBRARY_PATH "$work/cmake/$program" || fail "find_package, $program"
done
readelf -d "$work/cmake/shared" | grep -q 'NEEDED.*libordo' || fail "ordo::ordo is not the shared library"
readelf -d "$work/cmake/static" | grep -q 'NEEDED.*libordo' && fail "ordo::ordo_static is the shared library"
[ "$ORDO_LAB" = OFF ] || readelf -d "$work/cmake/lab" | grep -q 'NEEDED.*libordo_lab' || fail "ordo::ordo_lab is not the shared library"
[ "$ORDO_LAB" = ON ] && readelf -d "$work/cmake/lab_static" | grep -q 'NEEDED.*libordo' && fail "ordo::ordo_lab_static is shared"
step "find_package: shared, static, C++, laboratory"

# find_package(ordo VERSION): versions with the API of this one, and no others.
serves() { # version
    echo "set(PACKAGE_FIND_VERSION $1) # as find_package() does
        string(REPLACE . \; parts $1)
        list(GET parts 0 PACKAGE_FIND_VERSION_MAJOR)
        list(GET parts 1 PACKAGE_FIND_VERSION_MINOR)
        include($lib/cmake/ordo/ordo-config-version.cmake)
        if(NOT PACKAGE_VERSION_COMPATIBLE)
            message(FATAL_ERROR $1)
        endif()" >"$work/serves.cmake"
    cmake -P "$work/serves.cmake" >"$work/log" 2>&1
}
IFS=. read -r major minor patch < <("$ORDO" --version | sed -n '1s/^ordo \([0-9.]*\).*/\1/p')
serves "$major.$minor" && serves "$major.$minor.$patch" || fail "find_package: refuses its own version"
for other in "$major.$((minor + 1))" "$((major + 1)).$minor" 0.0; do
    serves "$other" && fail "find_package: $major.$minor.$patch takes itself for $other"
done
step "find_package: versions"

export PKG_CONFIG_PATH=$lib/pkgconfig
version=$("$ORDO" --version | sed -n "1s/^ordo \([0-9.]*\).*/\1/p")
[ "$(pkg-config --modversion ordo)" = "$version" ] || fail "pkg-config does not say version $version"
$CC "$outside/main.c" $(pkg-config --cflags --libs ordo) -o "$work/pc-shared"
env -u LD_LIBRARY_PATH "$work/pc-shared" || fail "pkg-config, shared: the program does not start"
readelf -d "$work/pc-shared" | grep -q 'NEEDED.*libordo' || fail "pkg-config: not the shared library"
if [ "$ORDO_LAB" = ON ]; then
    $CC "$outside/lab.c" $(pkg-config --cflags --libs ordo_lab) -o "$work/pc-lab"
    env -u LD_LIBRARY_PATH "$work/pc-lab" || fail "pkg-config, laboratory: the program does not start"
fi
rm -f "$lib"/libordo.so* "$lib"/libordo_lab.so* # or the linker would prefer it
$CC "$outside/main.c" $(pkg-config --static --cflags --libs ordo) -o "$work/pc-static"
"$work/pc-static" || fail "pkg-config, static"
if [ "$ORDO_LAB" = ON ]; then
    $CC "$outside/lab.c" $(pkg-config --static --cflags --libs ordo_lab) -o "$work/pc-lab-static"
    "$work/pc-lab-static" || fail "pkg-config, laboratory, static"
fi
step "pkg-config: shared, static"
