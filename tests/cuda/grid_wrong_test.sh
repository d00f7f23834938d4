#!/bin/bash
# The grid finds a wrong bit at every level, and prints a command that finds it again.
. "$ORDO_SOURCE/tests/common.sh"
grid=$ORDO_BUILD/tests/cuda/grid_test
"${CC:-cc}" -o "$work/json_check" "$ORDO_SOURCE/tests/cli/json_check.c" || exit 1

check() { # level, options...
    local level=$1 out status line again
    shift
    out=$("$grid" --backend cpu --repeats 1 "$@" --wrong "$level")
    status=$?
    [ $status = 1 ] || fail "--wrong $level: exit $status, expected 1"
    line=$(grep -m1 "^FAIL $level: " <<<"$out")
    [ -n "$line" ] || { fail "--wrong $level: no line of it"; return; }
    again=$("$grid" ${line##*; grid_test } --wrong "$level")
    grep -qF "$line" <<<"$again" || fail "--wrong $level: not found again by: ${line##*; }"
}

for level in oracle repeat portable batch layout split cut "keep bits" dropped segments sinks blocks some; do
    check "$level" --count 16 --work 0.3
done
check split --fixed --longest 8 --with D40,dlse

"$grid" --backend cpu --count 3 --work 0.1 --json | "$work/json_check" passed >"$work/passed" ||
    fail "--json: not JSON"
[ "$(cat "$work/passed")" = 3 ] || fail "--json: passed is $(cat "$work/passed"), expected 3"
"$grid" --backend cpu --count 40 --work 0.1 --with packed,f16 --without softcap --json |
    "$work/json_check" count >"$work/count" || fail "--with: fails"
count=$(cat "$work/count")
[ "$count" -gt 0 ] && [ "$count" -lt 20 ] || fail "--with: $count of 40 combinations"
for wrong in "--count 0" "--seed x" "--work -1" "--backend gpu" "--nothing" "more" \
    "--fixed --only 99999"; do
    "$grid" $wrong >/dev/null 2>&1
    [ $? = 2 ] || fail "$wrong: expected exit 2"
done
"$grid" --help | grep -q -- --only || fail "--help says nothing"
exit $failed
