# Every tool explains itself with --help, and does nothing else; tools/lint names a wrong step.
. "$ORDO_SOURCE/tests/common.sh" python3
cd "$ORDO_SOURCE" || exit 1
for tool in tools/*; do
    if [ ! -x "$tool" ]; then
        continue
    fi
    text=$("$tool" --help 2>&1 </dev/null) || fail "$tool --help: exit status $?"
    case $text in
    "$tool"[:\ ]* | "usage: ${tool#tools/} "*) ;;
    *) fail "$tool --help begins with: $(echo "$text" | head -n 1)" ;;
    esac
    lines=$(echo "$text" | wc -l)
    if [ "$lines" -gt 60 ]; then
        fail "$tool --help prints $lines lines"
    fi
done
text=$(tools/lint nosuch 2>&1)
[ $? = 2 ] || fail "tools/lint nosuch: exit status"
[ "${text#*nosuch}" != "$text" ] || fail "tools/lint nosuch says: $text"
exit $failed
