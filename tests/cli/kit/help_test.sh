# Every command explains itself, and wrong arguments are refused with a hint.
. "$ORDO_SOURCE/tests/cli/common.sh"

status 0 --version
grep -qE '^ordo [0-9]+\.[0-9]+\.[0-9]+' "$out" || fail "--version"
status 0 --help
prints "Commands:"
status 0 help
commands="info plan run verify gemm bench keep"
if lab; then
    prints "Laboratory:"
    commands="$commands schedule block model io"
else
    grep -q "Laboratory" "$out" && fail "a laboratory in a command that was built without"
fi
for command in $commands; do
    prints "  $command "
done
for command in $commands; do
    for ask in "$command --help" "help $command" "$command -h"; do
        # shellcheck disable=SC2086
        "$ORDO" $ask >"$work/help" 2>"$err" || fail "$ask"
        grep -q "^Usage: ordo $command" "$work/help" || fail "$ask: no usage"
        grep -q "^Examples:" "$work/help" || fail "$ask: no examples"
        grep -q -- "--json" "$work/help" || fail "$ask: no --json"
        [ -s "$err" ] && fail "$ask: wrote to stderr"
        awk 'length > 100 { exit 1 }' "$work/help" || fail "$ask: a line of more than 100 columns"
    done
    refuses 2 "unknown option '--jsno'; did you mean '--json'?" "$command" --jsno
    refuses 2 "Try 'ordo $command --help'" "$command" --nonsense
    refuses 2 "expected an option" "$command" word
done

"$ORDO" >"$out" 2>"$err"
[ $? -eq 2 ] || fail "no command: expected exit status 2"
refuses 2 "did you mean 'verify'?" verfy
if lab; then
    refuses 2 "did you mean 'schedule'?" schedul
else
    refuses 2 "unknown command 'schedule'" schedule
    refuses 3 "built without the laboratory" plan --seq 8 --memory
fi
refuses 2 "unknown command 'frobnicate'" frobnicate
refuses 2 "unknown command 'frobnicate'" help frobnicate
refuses 2 "unknown option '--frobnicate'" --frobnicate

# Every example of every help runs, but those that read or write a file.
for command in $commands; do
    "$ORDO" "$command" --help | sed -n '/^Examples:/,$p' | sed 1d |
        sed -e ':a' -e '/\\$/N; s/\\\n *//; ta' | grep -v -e --svg -e --picture -e --out-dir -e --write >"$work/examples"
    while read -r line; do
        sh -c "ordo() { \"$ORDO\" \"\$@\"; }; $line" >"$out" 2>"$err" </dev/null ||
            fail "example: $line"
    done <"$work/examples"
done
finish
