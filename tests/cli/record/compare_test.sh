# ordo compare: exit statuses, text, JSON and the page, of records written by hand.
. "$ORDO_SOURCE/tests/cli/common.sh"
cd "$work" || exit 1

record() { # file, step at which the gradient of head differs
    echo '{"ordo_record":1,"digest":"xxh64-pieces","rank":0,"ranks":1,"versions":{"ordo":"0.1.0"}}' >"$1"
    for step in 0 1 2 3 4 5 6 7; do
        digit=0
        if [ "$step" -ge "$2" ]; then digit=1; fi
        printf '{"step":%d,"loss":"000000000000000%d","loss_value":%d.5,"batch":[%d],' \
            "$step" "$step" "$((9 - step))" "$step"
        printf '"weights":{"head.<b>.w":"00000000000000a%d","emb.w":"00000000000000b%d"},' "$step" "$step"
        printf '"gradients":{"head.<b>.w":"0000000000000c%d%d","emb.w":"0000000000000d0%d"}}\n' \
            "$digit" "$step" "$step"
    done >>"$1"
}
record a.jsonl 99
record b.jsonl 99
record c.jsonl 5

status 0 compare a.jsonl b.jsonl
prints "equal: 8 steps, 0 to 7, 4 tensors"
status 1 compare a.jsonl c.jsonl
prints "DIFFERENT at step 5: gradient head.<b>.w"
prints "equal up to step 4: 5 steps"
prints "hint: numerics"
json compare a.jsonl b.jsonl
is equal true
is steps 8
"$ORDO" compare a.jsonl c.jsonl --json >"$out" 2>"$err"
[ $? -eq 1 ] || fail "--json with a difference: expected exit status 1"
is equal false
is step 5
is different '"gradient head.<b>.w"'
is other_gradients 1

# A file that is still being written.
head -c -20 b.jsonl >partial.jsonl
status 0 compare a.jsonl partial.jsonl
prints "B: the last line is incomplete"

# Lines that cannot be read: a status of its own, unless a difference was found, or a kill cut the
# line off and a resumed run follows.
sed '5s/.*/{"step":3,"loss":"00/' b.jsonl >damaged.jsonl
status 5 compare a.jsonl damaged.jsonl
prints "equal: 7 steps"
prints "B: 1 line ignored, the first is line 5"
status 5 compare damaged.jsonl a.jsonl --json
is equal true
is ignored_a 1
status 1 compare damaged.jsonl c.jsonl
{ cat b.jsonl && yes '[' | head -n 100000 | tr -d '\n' && echo; } >nested.jsonl
status 5 compare a.jsonl nested.jsonl
{ head -n 3 b.jsonl && printf '{"step":2,"lo\n' && head -n 1 b.jsonl && tail -n +4 b.jsonl; } >resumed.jsonl
status 0 compare a.jsonl resumed.jsonl
prints "B: 1 line truncated where the run was resumed"

# The page: complete, escaped, and without anything from elsewhere.
status 1 compare a.jsonl c.jsonl --html page.html
prints "DIFFERENT at step 5"
grep -q '</html>' page.html || fail "the page is not complete"
grep -q '<b>' page.html && fail "a name is not escaped"
grep -q 'head.&lt;b&gt;' page.html || fail "the layer is not on the map"
grep -qE 'https?:|src=|@import' page.html && fail "the page refers to something elsewhere"
[ "$(grep -c 'class="curve' page.html)" -eq 2 ] || fail "the page has not two curves"
[ "$(grep -o '<rect class="same"' page.html | wc -l)" -eq 2 ] || fail "equal cells on the map"
[ "$(grep -o '<rect class="g"' page.html | wc -l)" -eq 1 ] || fail "different cells on the map"
status 0 compare a.jsonl b.jsonl --html -
grep -q '^<!' "$out" || fail "--html -: no page on standard output"
echo '{"ordo_record":1}
{"step":3}' >bare.jsonl
status 0 compare a.jsonl bare.jsonl --html page.html
grep -q 'curve a' page.html || fail "no curve of the run that has a loss"
status 0 compare bare.jsonl bare.jsonl --html page.html
grep -q 'No loss was recorded' page.html || fail "no word about a loss that was not recorded"
grep -q 'No weights or gradients' page.html || fail "no word about tensors that were not recorded"

status 0 compare --help
prints "Usage: ordo compare A B"
status 0 help
prints "  compare "
refuses 2 "expected two records" compare
refuses 2 "expected two records" compare a.jsonl
refuses 2 "'b.jsonl': expected an option" compare a.jsonl c.jsonl b.jsonl
refuses 2 "unknown option '--htm'; did you mean '--html'?" compare a.jsonl b.jsonl --htm x
refuses 2 "nosuch.jsonl: " compare a.jsonl nosuch.jsonl
refuses 2 "expected the header of a record" compare a.jsonl "$ORDO_SOURCE/README.md"
refuses 2 "standard output is taken" compare a.jsonl b.jsonl --html - --json
sed 's/"step":/"step":1/' b.jsonl >later.jsonl
refuses 2 "expected some in common" compare a.jsonl later.jsonl
sed 's/"ordo_record":1/"ordo_record":7/' b.jsonl >newer.jsonl
refuses 3 "format 7" compare a.jsonl newer.jsonl
status 4 compare a.jsonl b.jsonl --html /nonexistent/page.html
finish
