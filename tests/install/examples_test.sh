# The examples in C run, with the same output in every run and on any number of threads; and examples/README.md
# lists every example with the test that runs it.
. "$ORDO_SOURCE/tests/common.sh"
set -e
for name in first attention keep_bits; do
    "$ORDO_BUILD/examples/$name" >"$ORDO_BUILD/examples/$name.said" || fail "$name: exit status $?"
    [ -s "$ORDO_BUILD/examples/$name.said" ] || fail "$name says nothing"
    ORDO_CPU=generic taskset -c 0 "$ORDO_BUILD/examples/$name" | cmp - "$ORDO_BUILD/examples/$name.said" ||
        fail "$name: other output on one core with other instructions"
done
cd "$ORDO_SOURCE/examples"
for example in *; do
    [ "$example" != README.md ] || continue
    test=$(sed -nE "s#^\| \[$example\]\([^)]*\) \| ([^ ]*) \|.*#\1#p" README.md)
    if [ ! -e "../$test" ] || [ -z "$test" ]; then
        fail "$example: examples/README.md names no test that runs it"
    elif ! grep -qE "\b${example%.*}\b" "../$test"; then
        fail "$example: $test does not mention it"
    fi
done
exit $failed
