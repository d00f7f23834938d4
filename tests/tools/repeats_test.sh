#!/bin/bash
# tools/check-repeats finds a passage of six lines that is written twice, whatever its indentation and
# comments, and counts neither five lines nor lists of names.
. "$ORDO_SOURCE/tests/common.sh" python3 git
finds() { # pairs, lines of a.c, lines of b.c
    local said
    printf '%s\n' "$2" >"$work/a.c"
    printf '%s\n' "$3" >"$work/b.c"
    said=$("$ORDO_SOURCE/tools/check-repeats" --root "$work" | tail -n 1)
    if [ "${said%% *}" != "$1" ]; then
        echo "FAIL $said; expected $1 of: $3"
        failed=1
    fi
}
passage() { # lines
    local i
    for ((i = 1; i <= $1; i++)); do
        echo "the_value_number_$i = one_function(of_argument, $i);"
    done
}
one=$(passage 6)
indented=$(echo "$one" | sed 's/^/        /; 3s/^/\n    \/\/ a comment\n/')
finds 1 "$one" "int x;
$indented"
finds 1 "$(passage 9)" "$(passage 9)"
finds 2 "$one" "$one
int between;
$one"
finds 0 "$(passage 5)" "$(passage 5)"
names=$(printf '    a_parameter_of_a_function_%s=None,\n' 1 2 3 4 5 6 7 8)
finds 0 "$names" "$names"
printf '%s\n' "$one" | tee "$work/a.c" >"$work/b.c"
if "$ORDO_SOURCE/tools/check-repeats" --root "$work" --most 0 >/dev/null; then
    echo "FAIL one pair is accepted where none may be"
    failed=1
fi
exit $failed
