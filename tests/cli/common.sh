# What the tests of the command share. Sourced; needs ORDO, ORDO_SOURCE and CC.
. "$ORDO_SOURCE/tests/common.sh" "${CC:-cc}"
out=$work/out
err=$work/err

fail() {
    echo "FAIL $*" >&2
    sed 's/^/    /' "$err" | head -5 >&2
    : >"$work/failed" # a variable would not leave $(...)
}

# status WANTED ARGS...: run the command; its output lies in $out and $err.
status() {
    wanted=$1
    shift
    "$ORDO" "$@" >"$out" 2>"$err"
    got=$?
    [ "$got" -eq "$wanted" ] || fail "ordo $*: exit status $got, expected $wanted"
}

# The command failed as it should: nothing on stdout, its name and the text on stderr.
refuses() { # status, text, args...
    wanted=$1
    text=$2
    shift 2
    status "$wanted" "$@"
    [ -s "$out" ] && fail "ordo $*: printed something though it failed"
    grep -q '^ordo' "$err" || fail "ordo $*: said nothing of its own"
    grep -qF -- "$text" "$err" || fail "ordo $*: expected to read: $text"
}

lab() { # whether the command has the subcommands of the laboratory
    [ "${ORDO_LAB-ON}" = ON ]
}

prints() { # text that must be in $out
    grep -qF -- "$1" "$out" || fail "expected in the output: $1"
}

${CC:-cc} -o "$work/json_check" "$ORDO_SOURCE/tests/cli/json_check.c" || exit 1

# json ARGS...: the command prints valid JSON; field NAME then prints one of its values.
json() {
    status 0 "$@" --json
    "$work/json_check" schema_version <"$out" >"$work/version" 2>"$err" || fail "ordo $*: not JSON"
    [ "$(cat "$work/version")" = 1 ] || fail "ordo $*: schema_version is not 1"
}
field() {
    "$work/json_check" "$1" <"$out"
}
digests() { # args of ordo run...
    json run "$@"
    field digests
}
same() { # what, digests, digests
    [ -n "$2" ] && [ "$2" = "$3" ] || fail "$1: other digests"
}
is() { # name, value
    [ "$(field "$1")" = "$2" ] || fail "$1 is $(field "$1"), expected $2"
}

# line ARGS...: the line of the plan that these options make.
line() {
    "$ORDO" plan "$@" --line 2>"$err" || fail "ordo plan $*: no line"
}

finish() {
    [ ! -e "$work/failed" ] || exit 1
    echo "passed"
    exit
}
