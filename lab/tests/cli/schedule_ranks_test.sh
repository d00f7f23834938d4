# ordo schedule --ranks: fields, the best method, drawings, and what it refuses.
. "$ORDO_SOURCE/tests/cli/common.sh"

json schedule --ranks 8
is ranks 8
is best '"heads"'
is simulated true
for name in machine layout rows flop_per_s link_bytes_per_s link_ns methods; do
    [ -n "$(field "$name")" ] || fail "no field $name"
done
for name in forward_ns backward_ns total_ns ideal_ns utilization sent_bytes memory_bytes items \
    stages backward_products; do
    [ "$(grep -c "\"$name\":" "$out")" -eq 3 ] || fail "no field $name of 3 methods"
done
[ "$(grep -c '"method":' "$out")" -eq 3 ] || fail "expected 3 methods"

# Eight key heads on 64 ranks: heads is refused by name, the others are not.
json schedule --ranks 64 --seq 1048576 --link-gbs 50 --link-us 10
grep -q '"error": "heads: 8 key heads, expected a multiple of 64 ranks"' "$out" || fail "no refusal"
is best '"gather"'
# Many key heads fill the pipe of a relay.
json schedule --ranks=6 --heads 64 --kv-heads 64 --seq 65536 --method relay
grep -q '"stages": 11,' "$out" || fail "expected 11 stages"
grep -q '"items": 64,' "$out" || fail "expected 64 items"
is best '"relay"'
json schedule --ranks 6 --heads 64 --kv-heads 64 --seq 65536
is best '"relay"'

COLUMNS=60 "$ORDO" schedule --ranks 40 --seq 4096 --ascii >"$out" 2>"$err" || fail "--ascii"
awk 'length > 60 && /\|/ { exit 1 }' "$out" || fail "--ascii: wider than COLUMNS"
grep -q '^   2 |.*b.*|$' "$out" || fail "--ascii: no line for rank 2"
"$ORDO" schedule --ranks 4 --seq 4096 --trace - >"$out" || fail "--trace"
grep -q '"name": "rank 3 link"' "$out" || fail "--trace: no link of rank 3"
"$ORDO" schedule --ranks 512 --seq 131072 --svg "$work/a.svg" --html "$work/a.html" >"$out" ||
    fail "--svg"
grep -q 'relay</tspan>' "$work/a.svg" || fail "--svg: no panel of the relay"
grep -q 'No figure here is measured' "$work/a.html" || fail "--html"
[ "$(wc -c <"$work/a.svg")" -lt 5000000 ] || fail "--svg: larger than its bound"

refuses 2 "--ranks 0: expected" schedule --ranks 0
refuses 2 "--link-gbs: missing; machine zen4" schedule --ranks 2 --machine zen4 --tflops 1
refuses 2 "--link-us -1: expected 0 to 1e+09" schedule --ranks 2 --link-us -1
refuses 2 "--link-gbs 0: expected a finite number above 0" schedule --ranks 2 --link-gbs 0
refuses 2 "--tflops -1: expected a finite number above 0" schedule --ranks 2 --tflops -1
status 0 schedule --ranks 2 --link-us 0
refuses 2 "at most one of" schedule --ranks 2 --json --svg -
refuses 3 "expected a multiple of 3 ranks" schedule --ranks 3 --method heads
finish
