# Files of `ordo schedule`: well formed, bounded, whole or absent; and writes that fail.
. "$ORDO_SOURCE/tests/cli/common.sh"

xml() { # file
    if command -v xmllint >/dev/null; then
        xmllint --noout "$1" 2>"$err" || fail "$1: not well formed"
    fi
    grep -q '</svg>' "$1" || fail "$1: no end"
}

cd "$work" || exit 1
status 0 schedule --mask causal --tiles 8 --heads 4 --order all --svg a.svg --html a.html --trace a.json
xml a.svg
for order in ascending descending shift symmetric spt twin spt+tail; do
    grep -qF ">$order</text>" a.svg || fail "a.svg: no title $order"
    grep -qF "<dt>$order</dt>" a.html || fail "a.html: no word on $order"
done
for class in critical w 'h0 c' h0; do
    grep -qF "class=\"$class\"" a.svg || fail "a.svg: nothing of class $class"
done
grep -qE '(src|href)=|url\(http|@import' a.html && fail "a.html: refers to something outside"
"$work/json_check" displayTimeUnit <a.json >"$out" 2>"$err" || fail "a.json: not JSON"
grep -q '"ns"' "$out" || fail "a.json: no displayTimeUnit"
for phase in X M s f; do
    grep -qF "\"ph\":\"$phase\"" a.json || fail "a.json: no event of phase $phase"
done
starts=$(grep -o '"ph":"s".*' a.json | grep -o '"id":"[^"]*"' | sort)
ends=$(grep -o '"ph":"f".*' a.json | grep -o '"id":"[^"]*"' | sort)
[ "$starts" = "$ends" ] || fail "a.json: arrows without start or end"
[ "$starts" = "$(printf '%s\n' "$starts" | uniq)" ] || fail "a.json: an arrow's id comes twice"

# Many steps: still a small picture.
status 0 schedule --mask causal --tiles 64 --ratio 2 --heads 16 --workers 132 --overlap 1 \
    --latency 3 --order all --svg big.svg
xml big.svg
[ "$(wc -c <big.svg)" -lt 5000000 ] || fail "big.svg: more than 5 MB"
refuses 3 "--trace big.json" schedule --tiles 256 --heads 64 --order ascending --trace big.json

status 0 schedule --tiles 4 --svg -
xml "$out"
status 0 schedule --tiles 4 --json=b.json
"$work/json_check" <b.json 2>"$err" || fail "b.json: not JSON"

# A file in use keeps its place and its permissions; a link stays a link.
echo old >kept.svg
chmod 640 kept.svg
ln -s kept.svg link.svg
status 0 schedule --tiles 4 --svg link.svg
[ -h link.svg ] || fail "the link was replaced"
xml kept.svg
case $(ls -l kept.svg) in -rw-r-----*) ;; *) fail "permissions changed" ;; esac

refuses 4 "cannot write" schedule --tiles 4 --svg "$work/no/such/dir.svg"
refuses 4 "cannot write" schedule --tiles 4 --svg "$work"
if [ -w /dev/full ]; then
    refuses 4 "No space left" schedule --tiles 4 --svg /dev/full
    [ -c /dev/full ] || fail "/dev/full was replaced"
    "$ORDO" schedule --tiles 4 2>"$err" >/dev/full
    [ $? -eq 4 ] || fail "full standard output: expected exit status 4"
fi
"$ORDO" schedule --tiles 4 2>"$err" >&-
[ $? -eq 4 ] || fail "closed standard output: expected exit status 4"
# What is left of a closed standard output must not land in the file.
"$ORDO" schedule --tiles 4 --json=closed.json 2>"$err" >&-
"$work/json_check" <closed.json 2>"$err" || fail "closed.json: not JSON"

# A reader that leaves: the writer ends as by SIGPIPE, without a message.
mkfifo pipe
true <pipe &
"$ORDO" schedule --tiles 64 --heads 8 --svg - 2>"$err" >pipe
[ $? -eq 141 ] || fail "closed pipe: expected exit status 141"
[ -s "$err" ] && fail "closed pipe: wrote to stderr"
wait

# An interrupt leaves nothing behind. The command may also be done before it comes.
mkdir quiet
"$ORDO" schedule --tiles 64 --heads 200 --order ascending --trace quiet/a.json >"$out" 2>"$err" &
pid=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    [ -n "$(ls quiet)" ] && break
    sleep 0.1
done
kill -TERM "$pid" 2>/dev/null
wait "$pid" 2>/dev/null
for file in quiet/*; do
    [ "$file" = "quiet/*" ] || [ "$file" = quiet/a.json ] || fail "left behind: $file"
done
for file in *.svg.* *.json.*; do
    [ -e "$file" ] && fail "left behind: $file"
done
finish
