# --plan LINE: the commands that execute plans run what ordo plan printed.
. "$ORDO_SOURCE/tests/cli/common.sh"

# The line of what was run is the line that was given, whatever the host would choose.
shape="--device cpu --seq 300 --batch 2 --heads 4 --kv-heads 2 --dim 16 --mask causal --window 90,-1 --dropout 0.1 --dtype bf16"
# shellcheck disable=SC2086 # lists of words
{
    plan=$(line $shape --order spt --tile-backward 32x64 --workers 3)
    json run --plan "$plan" --seed 5
    is line "\"$plan\""
    given=$(field digests)
    default=$(digests $shape --seed 5)
    [ "$default" != "$given" ] || fail "--plan: the digests of the default order"
    same "--plan and its options" "$(digests --plan "$(line $shape)" --seed 5)" "$default"

    # The twelve options that it replaces still work, with a note, and are not in the help.
    same "--order and --plan" "$(digests $shape --order spt --tile-backward 32x64 --workers 3 --seed 5)" "$given"
    status 0 run $shape --order spt
    grep -q "note: --order will not be accepted by the next version; expected --plan" "$err" ||
        fail "--order: no note"
    status 0 plan $shape --split 1
    grep -q "note: --split will not be accepted by the next version; expected nothing" "$err" || fail "--split: no note"
    refuses 2 "--split 2: expected" run $shape --split 2
    for command in run verify "bench attention"; do
        "$ORDO" $command --help | grep -q -e '^  --order' -e '^  --segments' && fail "$command --help: options of choices"
        refuses 2 "--order: the line of --plan states it" $command --plan "$plan" --order spt
    done

    # What the line states is refused, and all of ordo plan's options but the choices are known.
    options=$("$ORDO" plan --help | sed -n '/^The problem/,/^$/s/^  \(--[a-z-]*\) \([^ ]*\).*/\1=\2/p')
    [ "$(echo "$options" | wc -l)" -ge 20 ] || fail "ordo plan --help: no options"
    for option in $options; do
        value=${option#*=}
        case ${option%%=*} in
        --seed | --offset | --threads | --json* | --cu-* | --q-lens | --kv-lens | --block-mask | --seen) continue ;;
        --window) value=1,1 ;;
        --alibi) option=--alibi value= ;;
        esac
        value=${value%%|*}
        name=${option%%=*}
        case $value in N* | X | P) value=0.5 ;; esac
        case $name in
        --seq | --kv-seq | --batch | --heads | --kv-heads | --dim | --v-dim | --bits | --rounds) value=8 ;;
        esac
        for command in run verify "bench attention" keep; do
            refuses 2 "$name: the line of --plan states it" $command --plan "$plan" $name ${value:+"$value"}
        done
    done
    status 0 verify --plan "$plan" --threads 1,3 --repeats 1
    prints "each sequence alone                    2   equal"
    prints "every bit equal"
    status 0 verify --plan "$plan" --repeats 1 --cut rows
    prints "every bit equal"
    status 0 bench attention --plan "$plan" --pass forward --seconds 0.001
    prints "batch 2, heads 4 over 2, dim 16, window 90,0, dropout 0.1"
    json keep --plan "$plan" --seed 5
    kept=$(field kept)
    json keep ${shape/--mask causal --window 90,-1/} --seed 5
    is kept "$kept"
}

# The lengths of sequences are no part of a line, and stay within its maxima.
packed=$(line --cu-seqlens 0,100,400 --heads 2 --dim 16)
json run --plan "$packed" --cu-seqlens 0,5,300 --sequences
packed_digests=$(field sequences)
json run --cu-seqlens 0,5,300 --heads 2 --dim 16 --sequences
[ "$(field sequences)" = "$packed_digests" ] || fail "--plan: other digests of packed sequences"
refuses 2 "layout packed: expected --cu-seqlens" run --plan "$packed"
refuses 2 "--cu-seqlens: 3 sequences, and batch is 2" run --plan "$packed" --cu-seqlens 0,5,9,12
for ends in 0,5,306 0,250,401; do
    refuses 2 "--cu-seqlens: expected sequences of at most 300 rows, 400 together" \
        run --plan "$packed" --cu-seqlens $ends
    refuses 2 "--cu-seqlens-kv: expected sequences of at most 300 rows, 400 together" \
        run --plan "$packed" --cu-seqlens 0,5,300 --cu-seqlens-kv $ends
done
padded=$(line --seq 50 --q-lens 10,40 --dim 16)
status 0 run --plan "$padded" --q-lens 50,3
refuses 2 "layout padded: expected --q-lens or --kv-lens" run --plan "$padded"
refuses 2 "--q-lens 51: expected at most" run --plan "$padded" --q-lens 51,3
refuses 2 "layout dense: expected no lengths" run --plan "$(line --seq 8)" --q-lens 3

# Block masks are given as patterns and files, not in the line.
chunks=$(line --seq 300 --dim 16 --block-mask chunk:100)
same "--plan with a block mask" "$(digests --plan "$chunks" --block-mask chunk:100)" \
    "$(digests --seq 300 --dim 16 --block-mask chunk:100)"
refuses 2 "--block-mask: the plan has a block mask" run --plan "$chunks"
refuses 2 "--block-mask: the plan has no block mask" run --plan "$(line --seq 300)" --block-mask chunk:9

# Files are compared with the line.
json run --seq 20 --heads 2 --dim 8 --dtype f16 --save "$work/a.safetensors"
half=$(line --seq 20 --heads 2 --dim 8 --dtype f16)
same "--plan, --input" "$(digests --seq 20 --heads 2 --dim 8 --dtype f16)" \
    "$(digests --plan "$half" --input "$work/a.safetensors")"
refuses 2 "--seq 21: q of $work/a.safetensors has 20" \
    run --plan "$(line --seq 21 --heads 2 --dim 8 --dtype f16)" --input "$work/a.safetensors"
refuses 2 "--dtype bf16: q of" run --plan "$(line --seq 20 --heads 2 --dim 8 --dtype bf16)" --input "$work/a.safetensors"

# Lines that are none, or of less than whole sequences.
refuses 2 'plan "nonsense": expected it to begin with' run --plan nonsense
part=$(line --machine h200 --dtype bf16 --seq 256 --kv-seq 1k | sed 's/row0=0/row0=256/; s/ q_total=[0-9]*/ q_total=1024/')
for command in run verify "bench attention"; do
    # shellcheck disable=SC2086 # a list of words
    refuses 2 "--plan: a part of a problem" $command --plan "$part"
done
finish
