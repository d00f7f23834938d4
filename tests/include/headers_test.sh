# Each public header compiles alone, as C17 and as C++17.
set -eu
[ -n "${CXX-}" ] || echo "no C++ compiler: C only"
for header in "$ORDO_SOURCE"/include/ordo/*.h "$ORDO_SOURCE"/lab/include/ordo/{,lab/}*.h; do
    flags="-I $ORDO_SOURCE/include -I $ORDO_SOURCE/lab/include -Wall -Wextra -Werror -pedantic -fsyntax-only"
    name=ordo/${header##*/include/ordo/}
    echo "#include <$name>" | $CC -std=c17 $flags -x c -
    if [ -n "${CXX-}" ]; then
        echo "#include <$name>" | $CXX -std=c++17 $flags -x c++ -
    fi
    echo "ok   $name"
done
