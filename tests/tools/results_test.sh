# tools/results replaces one block of a page with what a program prints, and nothing if the program fails.
. "$ORDO_SOURCE/tests/common.sh" python3
results() { "$ORDO_SOURCE/tools/results" --write "$work/page.md" "$@" >"$work/out" 2>&1; }
page() {
    printf '# Page\n\n<!-- table one -->\n2000-01-01, a: `b`.\n\n| old |\n|---|\n<!-- end -->\n\nBetween.\n' >"$work/page.md"
    printf '\n<!-- table two -->\n2000-01-01, a: `c`.\n\n| kept |\n|---|\n<!-- end -->\n' >>"$work/page.md"
}
today=$(date +%Y-%m-%d)

page
results one printf '| new |\n|---|\n| %s |\n' 'a b' || fail "status $?: $(cat "$work/out")"
grep -qx '| a b |' "$work/out" || fail "does not show what is measured"
grep -q "^$today, .*: \`printf '| new |" "$work/page.md" || fail "no date or command: $(cat "$work/page.md")"
grep -q "$(uname -m)" "$work/page.md" || fail "no machine"
grep -qx '| a b |' "$work/page.md" || fail "no table"
grep -q '| old |' "$work/page.md" && fail "the old table is still there"
grep -qx '| kept |' "$work/page.md" && grep -qx 'Between.' "$work/page.md" || fail "more than one block changed"
[ "$(grep -c '<!-- table one -->' "$work/page.md")" = 1 ] || fail "two blocks of one name"
tail -n 1 "$work/page.md" | grep -qx '<!-- end -->' || fail "the end of the page changed"

results three echo 'rate 5' || fail "a new block: status $?"
tail -n 4 "$work/page.md" | tr '\n' ' ' | grep -q '```text rate 5 ``` <!-- end -->' || fail "text: $(cat "$work/page.md")"

for command in 'echo lost; exit 3' 'exit 77' 'true'; do
    page
    cp "$work/page.md" "$work/before"
    results one sh -c "$command" && fail "$command: status 0"
    cmp -s "$work/page.md" "$work/before" || fail "$command: the page changed"
done
results one sh -c 'exit 77'
[ $? = 77 ] || fail "a program that skips: status $?"

page
sed -i '/<!-- end -->/d' "$work/page.md"
results one echo a && fail "wrote into a block without an end"
grep -q 'block one: expected <!-- end -->' "$work/out" || fail "says: $(cat "$work/out")"
results 'One block' echo a && fail "took a name with a space"
exit $failed
