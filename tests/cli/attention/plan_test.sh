# ordo plan: report, line, lists, and the words for a problem.
. "$ORDO_SOURCE/tests/cli/common.sh"

status 0 plan --seq 1k --heads 4 --kv-heads 2 --mask causal --device ref
for word in problem tiles order workspace keeps "numeric key" line; do
    prints "$word"
done
json plan --seq 1000 --heads 4 --mask causal --dropout 0.1 --check
for name in problem backend order forward_tile backward_tile workspace_bytes kept not_kept \
    numeric_key line dropout note pairs_checked predicted_ns; do
    [ -n "$(field "$name")" ] || fail "no field $name"
done

# A line read back is the same plan, from an argument and from a pipe.
status 0 plan --seq 777 --heads 6 --kv-heads 2 --dim 80 --mask causal --window 100,0 --line
line=$(cat "$out")
status 0 plan --read "$line" --line
[ "$(cat "$out")" = "$line" ] || fail "--read: another line came back"
printf '%s\n' "$line" | "$ORDO" plan --read - --line >"$out" 2>"$err"
[ "$(cat "$out")" = "$line" ] || fail "--read -: another line came back"
printf '%s\n\n' "$line" | "$ORDO" plan --read - --line >"$out" 2>"$err"
[ "$(cat "$out")" = "$line" ] || fail "--read -: empty lines after it are nothing"
printf '%s\n%s\n' "$line" "$line" >"$work/lines"
refuses 2 "expected one plan line on standard input" plan --read - <"$work/lines"
printf '%s\0more\n' "$line" >"$work/lines"
refuses 2 "expected one plan line on standard input" plan --read - <"$work/lines"
refuses 2 "" plan --read "no plan at all"
refuses 2 "--seq: the line after --read already states the problem" plan --seq 4 --read "$line"

# Lists multiply; one that is refused does not hide the others.
json plan --seq 1k,2k --heads 2,4,8
[ "$(grep -c '"numeric_key":' "$out")" -eq 6 ] || fail "lists: expected 6 results"
status 2 plan --seq 1k --heads 4,6 --kv-heads 3 --json
[ "$(grep -c '"error":' "$out")" -eq 1 ] || fail "lists: expected one refused"
[ "$(grep -c '"numeric_key":' "$out")" -eq 1 ] || fail "lists: expected one made"

# Packed and padded.
status 0 plan --cu-seqlens 0,0,0 # no row: nothing to price
json plan --cu-seqlens 0,100,356 --cu-seqlens-kv 0,50,1k --heads 2
grep -q '"total_kv": 1024' "$out" || fail "packed: total_kv"
json plan --q-lens 100,20 --kv-lens 100,30
grep -q '"layout": "padded"' "$out" || fail "padded: layout"
refuses 2 "ends that do not decrease" plan --cu-seqlens 0,5,3
refuses 2 "--cu-seqlens 5,..: expected 0 and then" plan --cu-seqlens 5,9
refuses 2 "--cu-seqlens-kv: 1 sequences, expected 2" plan --cu-seqlens 0,5,9 --cu-seqlens-kv 0,5
refuses 2 "--seq: lengths of packed" plan --seq 5 --cu-seqlens 0,5
refuses 2 "--cu-seqlens: 2 sequences, and batch is 3" plan --batch 3 --cu-seqlens 0,5,9
refuses 2 "--q-lens 9: expected at most" plan --seq 8 --q-lens 9
refuses 2 "--seq: missing" plan --heads 2
refuses 2 "--window 1: expected" plan --seq 8 --window 1
refuses 2 "--tile-backward 64: expected" plan --seq 8 --tile-backward 64
refuses 2 "--seq 1k,,2k: expected" plan --seq 1k,,2k
refuses 2 "--scale nan: expected a finite number" plan --seq 8 --scale nan
refuses 2 "--scale 1e-400: expected a finite number that a double holds" plan --seq 8 --scale 1e-400
refuses 2 "--softcap 1e-400: expected a finite number that a double holds" plan --seq 8 --softcap 1e-400
refuses 2 "nearest usable p is 0.00390625, or set dropout.bits, up to 16" plan --seq 8 --dropout 0.001
status 0 plan --seq 8 --dropout 0.001 --bits 16
refuses 2 "--scale 0: expected another number" run --seq 8 --scale 0 # it ran with 1/sqrt(dim)
refuses 2 "" plan --seq 8 --machine nosuch
refuses 2 "" plan --seq 8 --dropout 1.5
# The advice on dropout has the words of --dropout-mode and --backward-bits.
h200="--seq 8k --heads 32 --dim 128 --dtype bf16 --machine h200 --dropout 0.1"
# shellcheck disable=SC2086 # a list of words
{
    status 0 plan $h200
    prints "dropout mode   sequential, keep: "
    json plan $h200
    tr -d ' \n' <"$out" | grep -qF '"mode":"sequential","keep_bits_reused":true' ||
        fail "no advice on dropout in the JSON"
    lab && ! tr -d ' \n' <"$out" | grep -qF '"dropout_mode":"sequential","backward_bits":"keep"' &&
        fail "no advice on dropout in the model of the JSON"
    status 0 plan $h200 --segments 16
    prints "dropout mode   pipelined, 16 segments of rows: each pass makes its keep bits, 33554432 of 268435456 B"
    status 0 plan ${h200#--seq 8k} --seq 128k
    prints "dropout mode   pipelined: 68719476736 B of keep bits; expected --segments or --keep-bits-memory"
}

# The contract names what two parties compare, and leaves out what a kept level proves irrelevant.
contract() {
    status 0 plan "$@" --contract
    sed -n '/^  semantics/p;/^  numeric key/p' "$out"
}
whole=$(contract --seq 300 --heads 4 --kv-heads 2 --mask causal --dropout 0.1)
[ "$(echo "$whole" | wc -l)" -eq 2 ] || fail "--contract: expected semantics and numeric key"
packed="--cu-seqlens 0,100,400 --heads 8 --kv-heads 4 --mask causal --dropout 0.1 --workers 7"
# shellcheck disable=SC2086 # a list of words
[ "$(contract $packed)" = "$whole" ] || fail "--contract: batch, heads or workers are compared"
rest="--kv-heads 2 --mask causal --dropout 0.1"
for choice in "$rest --dtype bf16" "$rest --window 9,0" "$rest --softcap 3" "$rest --scale 1" "$rest --alibi" \
    "$rest --dim 32" "$rest --v-dim 32" "$rest --keying fa2" "$rest --tile-backward 32x64" \
    "${rest/--kv-heads 2/--kv-heads 4}" "${rest/causal/causal-top-left}" "${rest/0.1/0.2}"; do
    # shellcheck disable=SC2086 # a list of words
    [ "$(contract --seq 300 --heads 4 $choice)" != "$whole" ] || fail "--contract: $choice is not compared"
done
for level in repeat portable batch split cut keep-bits; do
    prints "  $level "
done
waves="--machine h200 --dtype bf16 --seq 2k --heads 8 --order shift --group waves"
# shellcheck disable=SC2086 # a list of words
contract $waves | grep -q ' batch=1 heads=8 ' || fail "--contract: waves depend on batch and heads"
sed -n '/^may matter/,$p' "$out" | grep -q '^  batch ' || fail "--contract: batch may matter to waves"
# shellcheck disable=SC2086 # a list of words
json plan $waves --contract
[ -n "$(field semantics)" ] || fail "--contract: no semantics in the JSON"
tr -d ' \n' <"$out" | grep -q '"may_matter":{"portable":' || fail "--contract: may_matter in the JSON"
# A part of a sequence, by an order that does not keep the level cut, is compared as that part.
line=$("$ORDO" plan --machine h200 --dtype bf16 --seq 256 --kv-seq 1k --order twin --line |
    sed 's/row0=0/row0=256/; s/ q_total=[0-9]*/ q_total=1024/')
contract --read "$line" | grep -q ' q_len=256 kv_len=1024 .*row0=256' || fail "--contract: no part"
refuses 2 "--contract and --line" plan --seq 8 --contract --line
# A CUDA plan says by which form its backward pass runs, and what the others would move: at 512 the
# form moves the fewest bytes, at 320 flash would move fewer but has no kernels, at 128 it is used.
wide="--seq 8k --heads 4 --dim 512 --dtype bf16 --machine h200"
counted() { # what the I/O model adds to the form
    if lab; then
        prints "$1"
    else
        grep -q "bytes per score between L2" "$out" && fail "bytes per score without a laboratory"
    fi
}
# shellcheck disable=SC2086 # a list of words
{
    status 0 plan $wide
    prints "by phases: 66 bytes per score from L2, flash tiles would move 102; P and dS"
    prints "backward form  phase"
    counted ", which moves the fewest bytes"
    counted "flash 102, phase 66; apart 83 with seven products"
    prints "64 query tiles of 4 key heads"
    status 0 plan ${wide/512/256} # in chains
    prints "backward 128x256"
    prints "by phases: 24 bytes per score from L2, flash tiles would move 26; room for dS of"
    prints "backward form  chain"
    counted ", which moves the fewest bytes"
    status 0 plan ${wide/512/192} --v-dim 128
    prints "by phases: 17 bytes per score from L2, flash tiles would move 13 but have no kernels"
    prints "backward form  chain"
    counted "; flash has no kernels for this head size"
    status 0 plan ${wide/512/256} --dropout 0.1
    prints "backward 128x256"
    prints "backward form  chain"
    line=$("$ORDO" plan ${wide/512/256} --dropout 0.1 --line)
    status 0 plan --read "$line" # without a machine
    prints "backward form  chain"
    line=$(sed 's/bq=128 bk=256/bq=64 bk=64/; s/b128x256/b64x64/' <<<"$line") # as 0.1.0 wrote it
    refuses 3 "backward_tile 64x64: backend cuda expects 128x256" plan --read "$line"
    status 0 plan $wide --workspace-limit 100m
    prints "of 1 key heads"
    prints "limit=104857600 key="
    json plan $wide
    lab && ! tr -d ' \n' <"$out" |
        grep -qF '"apart":83.2,"phase":66,"phase_hbm":10,"fewest":"phase"}' &&
        fail "no bytes per score in the JSON"
    grep -q '"backward_form": "phase"' "$out" || fail "no form in the JSON"
    refuses 2 "--workspace-limit 0" plan $wide --workspace-limit 0
}
status 0 plan --seq 8k --heads 4 --dim 320 --dtype bf16 --machine h200
prints "by phases: 44 bytes per score from L2, flash tiles would move 40 but have no kernels above head size 128"
prints "backward form  phase"
counted "; flash has no kernels for this head size, but moves fewer bytes"
status 0 plan --seq 8k --heads 4 --dim 128 --dtype bf16 --machine h200
prints "backward form  flash"
counted ", which moves the fewest bytes"
finish
