# ordo verify: equal bits in every way it runs, and a difference found where there is one.
. "$ORDO_SOURCE/tests/cli/common.sh"
cd "$work" || exit 1

small="--heads 2 --dim 16 --mask causal --dropout 0.2 --seed 3"

# shellcheck disable=SC2086 # a list of words
status 0 verify --seq 150 --batch 3 $small --device cpu --repeats 1
for row in "1 thread " "2 threads " "8 threads " "4 threads, delays up to 100 us" \
    "each sequence alone                    3   equal" "the batch in reverse order" \
    "another process  " "target generic" "every bit equal"; do
    prints "$row"
done
grep -q "DIFFERENT" "$out" && fail "a difference"

# The digests are those of ordo run.
json run --seq 150 --batch 3 $small --device cpu
run=$(field digests | tr -d ' \n')
json verify --seq 150 --batch 3 $small --device cpu --threads 3,1 --repeats 2 --delay 0
grep -qF '"equal": true' "$out" || fail "not equal"
tr -d ' \n' <"$out" | grep -qF "\"digests\":$run" || fail "digests are not those of ordo run"
grep -q "delays" "$out" && fail "--delay 0: delays all the same"

# Packed and padded sequences, every type, the oracle, lists.
for dtype in f32 bf16 f16; do
    json verify --cu-seqlens 0,70,70,200 --heads 4 --kv-heads 2 --dim 8 --dtype $dtype \
        --window 64,0 --threads 1,2 --repeats 1
    json verify --q-lens 33,0,129 --kv-lens 40,20,0 --seq 130 --dim 8 --v-dim 4 --dtype $dtype \
        --alibi --softcap 20 --threads 2 --repeats 1
done
status 0 verify --device ref --seq 20 --batch 2 $small
prints "each sequence alone"
grep -q "target" "$out" && fail "the oracle has no targets"
json verify --seq 30,40 --dim 8 --threads 2 --repeats 1
[ "$(grep -c '"checks":' "$out")" -eq 2 ] || fail "lists: expected 2 results"

# Sequences cut into calls: every layout, with dropout, and a plan that does not promise it.
for cut in rows columns decode; do
    # shellcheck disable=SC2086 # a list of words
    status 0 verify --seq 300 --batch 2 $small --kv-heads 1 --device cpu --cut $cut
    prints "every bit equal"
    grep -q "threads\|process" "$out" && fail "--cut $cut: other checks too"
    json verify --cu-seqlens 0,70,70,300 --heads 2 --dim 8 --dtype bf16 --mask causal --cut $cut
    json verify --q-lens 33,0,129 --kv-lens 40,20,0 --seq 130 --dim 8 --v-dim 4 --dtype f16 \
        --alibi --softcap 20 --window 30,5 --cut $cut
done
status 0 verify --seq 300 --dim 8 --mask causal --cut rows
for row in "pieces of 100 rows " "5 parts of rows, sums carried          5   equal"; do
    prints "$row"
done
status 0 verify --seq 300 --dim 8 --mask causal --cut columns
prints "pieces of 128 columns                  3   equal"
status 0 verify --seq 40 --dim 8 --mask causal --cut decode
prints "each row alone                        40   equal"
status 0 verify --seq 40 --kv-seq 70 --heads 2 --kv-heads 1 --mask causal --window 20,0 --dtype bf16 --cut decode --page 7
prints "each row, keys in pages of 7          40   equal"
refuses 2 "--cut decode" verify --seq 8 --page 4 --cut rows
refuses 2 "--page: expected --mask causal" verify --seq 8 --page 4 --cut decode
refuses 2 "--page: expected --mask causal" verify --seq 8 --mask causal --dropout 0.1 --page 4 --cut decode
plan=$(line --seq 300 --dim 8 --heads 4 --mask causal --order spt+tail)
status 0 verify --plan "$plan" --cut rows
prints "not run: not promised by this plan"
prints "runs, nothing compared,"
json verify --plan "$plan" --cut rows
[ "$("$work/json_check" equal <"$out" | uniq)" = null ] || fail "nothing compared: equal is not null"
refuses 2 "--cut" verify --seq 8 --cut heads

# Digests kept for another machine.
status 0 verify --seq 40,50 --dim 8 --dropout 0.1 --threads 2 --repeats 1 --write kept.txt
[ "$(grep -c '^plan ordo-plan' kept.txt)" -eq 2 ] || fail "--write: not two plans"
status 0 verify --seq 40,50 --dim 8 --dropout 0.1 --threads 1 --repeats 1 --expect kept.txt
prints "digests of kept.txt"
# Another number of workers is another machine, not another result; version 0.1 predicted a time.
sed 's/ workers=[0-9]*/ workers=77 predicted_ns=1/' kept.txt >other.txt
status 0 verify --seq 40,50 --dim 8 --dropout 0.1 --threads 1 --repeats 1 --expect other.txt
sed '5s/^lse ................/lse 0123456789abcdef/' kept.txt >changed.txt
status 1 verify --seq 40,50 --dim 8 --dropout 0.1 --threads 1 --repeats 1 --expect changed.txt \
    --write never.txt
prints "expected 0123456789abcdef"
grep -q '^      lse: ' "$out" || fail "the tensor that differs is not named"
[ -e never.txt ] && fail "digests that differ were written"
status 1 verify --seq 40,50 --dim 8 --threads 1 --repeats 1 --expect kept.txt
prints "another plan: dropout=0 here"
status 1 verify --seq 40,50 --dim 8 --dropout 0.1 --seed 9 --threads 1 --repeats 1 --expect kept.txt
prints "other inputs: seed=9"
"$ORDO" verify --seq 40,50 --dim 8 --dropout 0.1 --threads 1 --repeats 1 --expect changed.txt \
    --json >"$out" 2>"$err"
[ $? -eq 1 ] || fail "--json with a difference: expected exit status 1"
"$work/json_check" equal <"$out" | grep -qx false || fail "--json: equal is not false"

status 0 verify --seq 40 --batch 2 --dim 8 --sinks --threads 2 --repeats 1 --write sinks.txt
[ "$(grep -c '^dsink ' sinks.txt)" -eq 1 ] || fail "--sinks --write: no line of dsink"
status 0 verify --seq 40 --batch 2 --dim 8 --sinks --threads 1 --repeats 1 --expect sinks.txt
status 1 verify --seq 40 --batch 2 --dim 8 --threads 1 --repeats 1 --expect sinks.txt
sed 's/^dsink .*/dsink 0123456789abcdef/' sinks.txt >sunk.txt
status 1 verify --seq 40 --batch 2 --dim 8 --sinks --threads 1 --repeats 1 --expect sunk.txt
prints "dsink: "
refuses 2 "digests of 2 problems, and 1" verify --seq 40 --dim 8 --repeats 1 --expect kept.txt
refuses 2 "cannot read" verify --seq 8 --repeats 1 --expect missing.txt
refuses 2 "not a regular file" verify --seq 8 --repeats 1 --expect "$work"
head -c 900 kept.txt >cut.txt
refuses 2 "cut.txt:" verify --seq 40 --dim 8 --dropout 0.1 --repeats 1 --expect cut.txt
echo "ordo-digests 2" >version.txt
refuses 2 "version.txt:1:" verify --seq 8 --repeats 1 --expect version.txt
sed '2s/revision=[0-9]*/revision=99/' kept.txt >future.txt
"$ORDO" verify --seq 40,50 --dim 8 --dropout 0.1 --repeats 1 --expect future.txt >"$out" 2>"$err"
[ $? -ge 2 ] || fail "a plan of an unknown revision was compared"
printf 'ordo-digests 1\nplan x\0y\n' >nul.txt
refuses 2 "nul.txt" verify --seq 8 --repeats 1 --expect nul.txt
refuses 2 "--repeats 0" verify --seq 8 --repeats 0
refuses 2 "--delay -1" verify --seq 8 --delay -1
refuses 3 "floating-point operations" verify --seq 32k --heads 4
refuses 3 "backend cuda" verify --seq 8 --device cuda
refuses 4 "cannot write no/such/file" verify --seq 8 --threads 1 --repeats 1 --write no/such/file

# One bit that is wrong in one run of many: found, and said where.
flip=$ORDO_BUILD/tests/cli/attention/flip_module.so
if [ -e "$flip" ] && ! "$ORDO" info | grep -qE '\+(asan|tsan|ubsan)'; then
    # element ((row 5 of sequence 1) 2 heads + head 1) 8 columns + column 3
    export FLIP_CALL=4 FLIP_ELEMENT=$((((20 + 5) * 2 + 1) * 8 + 3))
    LD_PRELOAD=$flip "$ORDO" verify --device cpu --seq 20 --batch 2 --heads 2 --dim 8 \
        --threads 1,2 --repeats 3 >"$out" 2>"$err"
    [ $? -eq 1 ] || fail "one wrong bit: expected exit status 1"
    prints "dq, sequence 1, row 5, head 1, column 3: 0x"
    prints "; 1 of 320 elements differ"
    [ "$(grep -c DIFFERENT "$out")" -eq 2 ] || fail "one wrong bit: expected one row and the sum"
    grep -q "2 threads  .* DIFFERENT" "$out" || fail "one wrong bit: not in the row of 2 threads"
    LD_PRELOAD=$flip "$ORDO" verify --device cpu --seq 20 --batch 2 --heads 2 --dim 8 \
        --threads 1,2 --repeats 3 --json >"$out" 2>"$err"
    tr -d ' \n' <"$out" |
        grep -qF '"tensor":"dq","sequence":1,"row":5,"head":1,"column":3,"bits":' ||
        fail "--json does not say where"
    # The second of two parts of one sequence of 200 rows: row 5 of it, head 1, column 3.
    export FLIP_CALL=4 FLIP_ELEMENT=$(((5 * 2 + 1) * 8 + 3))
    LD_PRELOAD=$flip "$ORDO" verify --device cpu --seq 200 --heads 2 --dim 8 --cut rows \
        >"$out" 2>"$err"
    [ $? -eq 1 ] || fail "--cut, one wrong bit: expected exit status 1"
    grep -q "2 parts of rows, sums carried  .* DIFFERENT" "$out" ||
        fail "--cut, one wrong bit: not in the row of two parts"
    # The lowest bit of a zero, in f16.
    FLIP_ELEMENT=0 LD_PRELOAD=$flip "$ORDO" verify --device cpu --seq 20 --heads 2 --dim 8 --dtype f16 \
        --mask causal --threads 1,2 --repeats 3 >"$out" 2>"$err"
    prints "0x0001 (5.96046448e-08), expected 0x0000 (0); 1 of 320 elements differ"
fi
finish
