# ordo schedule: known makespans, all orders, JSON, and what it refuses.
. "$ORDO_SOURCE/tests/cli/common.sh"

# Two key tiles of each pair on one worker, no one waits: 4 heads x 9 steps / 2 x (2 + 2).
json schedule --mask causal --tiles 8 --heads 4 --workers 8 --order symmetric --compute 2 --reduce 2
is makespan 72
is lower_bound 72
is order '"symmetric"'
is valid true
is utilization 1
is stall 0
is tasks 144

# order, makespan: 8 tiles, 4 heads, compute 3, reduce 1
while read -r mask order makespan; do
    json schedule --mask "$mask" --tiles 8 --heads 4 --compute 3 --reduce 1 --order "$order"
    is makespan "$makespan"
done <<'END'
full ascending 135
full shift 128
causal ascending 135
causal descending 79
causal symmetric 72
causal spt 88
causal twin 72
END

# Fields promised for every order.
for name in order order_asked makespan lower_bound closed_form closed_form_agrees utilization \
    stall coresident valid numeric_key assign issue group accumulators tasks bound_work bound_chain \
    bound_turns startup tail busy exact note; do
    [ -n "$(field "$name")" ] || fail "no field $name"
done
[ -z "$(field critical_path)" ] || fail "a critical path nobody asked for"
json schedule --tiles 4 --critical
[ -n "$(field critical_path)" ] || fail "no critical path"
is order_asked '"auto"'

json schedule --mask causal --tiles 8 --heads 4 --order all
[ "$(grep -c '"order":' "$out")" -eq 7 ] || fail "--order all: expected 7 orders"
[ -n "$(field orders)" ] || fail "--order all: no array of orders"
json schedule --tiles 8 --order ascending,shift
[ "$(grep -c '"makespan":' "$out")" -eq 2 ] || fail "a list of orders: expected 2"

# Orders that cannot run on so few workers are named, not fatal, unless nothing is left.
json schedule --tiles 8 --workers 2 --order all --group 8
grep -q '"error": "unsupported"' "$out" || fail "--order all: expected a refused order"
refuses 3 "" schedule --tiles 8 --workers 2 --order shift --group 8

# 8/5 and 1.6 are the same ratio.
json schedule --mask causal --tiles 10 --ratio 8/5 --order spt
makespan=$(field makespan)
json schedule --mask causal --tiles 10 --ratio 1.6 --order spt
is makespan "$makespan"

# The option has a new name; the old one is noted.
status 0 schedule --mask causal --tiles 10 --split 2 --json
grep -q '"accumulators": 2' "$out" || fail "--split: other accumulators"
grep -q "note: --split will not be accepted by the next version; expected --accumulators" "$err" || fail "--split: no note"

COLUMNS=60 "$ORDO" schedule --tiles 8 --heads 3 --ascii >"$out" 2>"$err" || fail "--ascii"
awk 'length > 60 && /\|/ { exit 1 }' "$out" || fail "--ascii: wider than COLUMNS"
grep -q '^   7 |.*|$' "$out" || fail "--ascii: no line for worker 7"

refuses 2 "--tiles 0: expected" schedule --tiles 0
refuses 2 "--tiles: missing" schedule
refuses 2 "--tiles 4x: expected" schedule --tiles 4x
refuses 2 "--heads 3k5: expected" schedule --tiles 4 --heads 3k5
refuses 2 "--heads -1: expected" schedule --tiles 4 --heads -1
refuses 2 "--heads 99999999999999999999: expected" schedule --tiles 4 --heads 99999999999999999999
refuses 2 "--compute 1.5: expected" schedule --tiles 4 --compute 1.5
refuses 2 "--heads: expected a value" schedule --tiles 4 --heads
refuses 2 "--heads: given twice" schedule --tiles 4 --heads 1 --heads 2
refuses 2 "--mask sliding: expected full|causal" schedule --tiles 4 --mask sliding
refuses 2 "did you mean symmetric?" schedule --tiles 4 --order symetric
refuses 2 "--ratio 1/0: expected" schedule --tiles 4 --ratio 1/0
refuses 2 "--group many: expected" schedule --tiles 4 --group many
refuses 2 "--ascii: takes no value" schedule --tiles 4 --ascii=yes
refuses 2 "expected at most one of" schedule --tiles 4 --json --svg -
# Eight heads on two key heads, and a window of two key tiles: 1 + 2 + 5 x 3 tiles a head.
json schedule --mask causal --tiles 7 --heads 8 --kv-heads 2 --window 2,0 --order descending
is tasks 144
is valid true
grep -q '"kv_heads": 2' "$out" || fail "no key heads"
grep -q '"window_left": 2' "$out" || fail "no window"
refuses 2 "kv_heads 3: expected a divisor of heads 8" schedule --tiles 7 --heads 8 --kv-heads 3 --order descending
refuses 2 "--window 2: expected two whole numbers" schedule --tiles 7 --window 2

# Documents of 2, 3 and 2 key tiles, each in two query tiles per key tile: 2 x (4 + 9 + 4) of a full mask.
json schedule --tiles 7 --ratio 2 --block-mask documents:2,3,2 --order spt
is tasks 34
is valid true
json schedule --mask causal --tiles 7 --block-mask chunk:2 --order all
grep -q 'block masks have no cyclic orders' "$out" || fail "cyclic orders under a block mask"
refuses 3 'order shift: block masks have no cyclic orders' schedule --tiles 7 --block-mask chunk:2 --order shift

finish
