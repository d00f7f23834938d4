# ordo audit: recomputes what a pass of family sm90 computed, finds planted damage, and names what is
# wrong with files. tests/data/emulator/h200.safetensors was written on an H200 by
#
#   ordo run --device cuda --seq 130 --heads 2 --kv-heads 1 --dim 64 --mask causal --dropout 0.1 \
#       --dtype bf16 --seed 7 --save h200.safetensors
. "$ORDO_SOURCE/tests/cli/common.sh"
cd "$work" || exit 1

start_of() { # file: where its data begin
    echo $((8 + $(od -An -tu8 -N8 "$1")))
}
offset_of() { # file, tensor: where it begins
    echo $(($(start_of "$1") + $(head -c "$(start_of "$1")" "$1" |
        LC_ALL=C sed -n "s/.*\"$2\": {[^}]*\"data_offsets\": \[\([0-9]*\),.*/\1/p")))
}
# damage FROM TO TENSOR BYTE: a copy with one bit of a tensor changed
damage() {
    byte=$(od -An -tu1 -j $(($(offset_of "$1" "$3") + $4)) -N1 "$1")
    replace "$1" "$2" "$3" "$4" $((byte ^ 1))
}
replace() { # FROM TO TENSOR BYTE VALUES...: a copy with other bytes
    file=$2
    at=$(($(offset_of "$1" "$3") + $4))
    cp "$1" "$file"
    shift 4
    for value in "$@"; do
        # shellcheck disable=SC2059 # the format is an octal escape
        printf "$(printf '\\%03o' "$value")" | dd of="$file" bs=1 seek=$at conv=notrunc 2>/dev/null
        at=$((at + 1))
    done
}

# What an H200 computed, with dropout, grouped heads and ragged last tiles: per head 3 units of 64 rows
# and 2 tiles of dq, and 2 tiles of keys.
record=$ORDO_SOURCE/tests/data/emulator/h200.safetensors
json audit "$record"
is equal true
is different 0
prints backend=cuda
prints '"forward": {"units": 6, "checked": 6'
prints '"backward": {"units": 6, "checked": 6'
status 0 audit "$record" --pass forward --threads 2
grep -q ': 6 of 6 units, .* scores: about .* s on 2 threads' "$err" || fail "no estimate of the time"
prints "equal      every bit of 6 units"

# One bit of any output is found, in its unit and at its element; o is read by the backward pass, too.
while IFS='|' read -r tensor byte count unit place; do
    damage "$record" bad.safetensors "$tensor" "$byte"
    status 1 audit bad.safetensors --threads 2
    prints "DIFFERENT  $count of 12 units; the first is $unit"
    prints "           $tensor, sequence 0, $place: found "
    prints "elements of this unit that differ: 1"
done <<'LINES'
o|16782|3|forward unit 4, sequence 0, head 1, rows 64 to 127|row 65, head 1, column 7
lse|1036|1|forward unit 5, sequence 0, head 1, rows 128 to 129|row 129, head 1, column 0
dq|32902|1|backward unit 3, sequence 0, head 1, rows 128 to 129|row 128, head 1, column 3
dk|16638|1|backward unit 5, sequence 0, key head 0, keys 128 to 129|row 129, head 0, column 63
dv|0|1|backward unit 4, sequence 0, key head 0, keys 0 to 127|row 0, head 0, column 0
LINES
status 1 audit bad.safetensors --json
is equal false
grep -q '"tensor": "dv"' "$out" || fail "--json: no tensor"

# A damaged input is found, too.
for tensor in q k v dout; do
    damage "$record" bad.safetensors $tensor 0
    status 1 audit bad.safetensors
done

# Another seed of dropout, another offset: other bits.
status 1 audit "$record" --inputs "seed=8 offset=0"
status 1 audit "$record" --inputs "seed=7 offset=1"

# A sample: the same units for the same seed, as many as asked for; all of them find the damage of dv.
damage "$record" bad.safetensors dv 0
found=0
for seed in 1 2 3 4 5 6 7 8 9 10 11 12; do
    "$ORDO" audit bad.safetensors --sample 4 --seed $seed >"$out" 2>"$err"
    case $? in
    0) prints "every bit of 4 units:" && grep -q ' d[kv]$\| dq$\| lse$' "$out" || fail "--sample: no names" ;;
    1) found=$((found + 1)) && prints "DIFFERENT  1 of 4 units" ;;
    *) fail "--sample 4 --seed $seed" ;;
    esac
done
[ $found -gt 0 ] && [ $found -lt 12 ] || fail "--sample 4 of 12: found one damaged unit in $found of 12 draws"
status 1 audit bad.safetensors --sample 100

# A NaN in an output is a difference, although the backward pass reads o and lse. Beside an infinity in
# an input there are units that cannot be known: that is neither equal nor, by itself, different.
for tensor in o dq dk dv; do
    replace "$record" bad.safetensors $tensor 200 255 127
    status 1 audit bad.safetensors
    prints "$tensor, sequence 0, row "
    prints "found nan (0x7fff), expected "
done
replace "$record" bad.safetensors lse 400 255 255 255 127
status 1 audit bad.safetensors
prints "lse, sequence 0, row 100, head 0, column 0: found nan (0x7fffffff), expected "
replace "$record" bad.safetensors v 16638 128 127
refuses 3 "of 12 units cannot be audited, and the others are equal; the first is forward unit 2: a NaN or \
infinity in an input" audit bad.safetensors --threads 2
damage bad.safetensors worse.safetensors o 0
status 1 audit worse.safetensors
prints "unknown    "
prints " of 12 units; the first is forward unit 0, sequence 0, head 0, rows 0 to 63"

# Rows of no sequence, and gradients of sinks, are checked, too; of each sequence and head one unit.
"$ORDO" run --device emulator --batch 3 --seq 40 --q-lens 40,7,0 --kv-lens 40,9,20 --heads 2 --dim 64 \
    --dtype bf16 --mask causal --sinks --save padded.safetensors >"$out" 2>"$err" || fail "run --save"
json audit padded.safetensors
prints '"forward": {"units": 5, "checked": 5'
prints '"backward": {"units": 17, "checked": 17'
status 0 audit padded.safetensors
prints "equal      every bit of 22 units: o lse dq dk dv dsink"
while IFS='|' read -r tensor byte unit place; do
    damage padded.safetensors bad.safetensors "$tensor" "$byte"
    status 1 audit bad.safetensors
    prints "DIFFERENT  1 of 22 units; the first is $unit"
    prints "           $tensor, sequence $place: found "
done <<'LINES'
o|12034|forward unit 4, the 73 rows of no sequence|1, row 7, head 0, column 1
lse|956|forward unit 4, the 73 rows of no sequence|2, row 39, head 1, column 0
dq|30718|backward unit 16, the 124 rows of no sequence|2, row 39, head 1, column 63
dk|12544|backward unit 16, the 124 rows of no sequence|1, row 9, head 0, column 0
dv|30718|backward unit 16, the 124 rows of no sequence|2, row 39, head 1, column 63
dsink|12|backward unit 13, sequence 1, head 1, rows 0 to 6|1, row 0, head 1, column 0
LINES

# Packed, with slopes and sinks; the forward pass alone; tensors in files of their own.
"$ORDO" run --device emulator --cu-seqlens 0,40,107 --heads 2 --dim 64 --alibi --sinks --dtype f16 \
    --mask causal --save packed.safetensors >"$out" 2>"$err" || fail "run --save"
status 0 audit packed.safetensors
"$ORDO" run --device emulator --seq 70 --dim 64 --dtype f16 --pass forward --save one.safetensors >"$out" \
    2>"$err" || fail "run --pass forward --save"
status 0 audit one.safetensors
prints "equal      every bit of 2 units: o lse"
refuses 2 "--pass backward: no dq, dk or dv" audit one.safetensors --pass backward
refuses 2 "--seed: expected only with --sample" audit one.safetensors --seed 7
for tensor in q k v o lse; do
    descr="'<f2'" shape="(1, 70, 1, 64)" bytes=$((70 * 64 * 2))
    [ $tensor = lse ] && descr="'<f4'" shape="(1, 1, 70)" bytes=$((70 * 4))
    {
        printf '\223NUMPY\001\000\166\000'
        printf '%-117s\n' "{'descr': $descr, 'fortran_order': False, 'shape': $shape, }"
        tail -c +$((1 + $(offset_of one.safetensors $tensor))) one.safetensors | head -c $bytes
    } >$tensor.npy
done
plan=$("$ORDO" plan --device emulator --machine h200 --seq 70 --dim 64 --dtype f16 --line)
status 0 audit q.npy k.npy v.npy o.npy lse.npy --plan "$plan"
refuses 2 "no plan" audit q.npy k.npy v.npy o.npy lse.npy
refuses 4 "no tensor lse" audit q.npy k.npy v.npy o.npy --plan "$plan"
refuses 4 "q: in one.safetensors and in q.npy" audit one.safetensors q.npy
refuses 2 "expected a name such as q.npy" audit bad.npy --plan "$plan"

# A tensor that nobody would look at is an error, even if it is misspelt.
LC_ALL=C sed 's/"dq":/"dQ":/' "$record" >bad.safetensors
refuses 4 "a tensor dQ, which an audit would not look at" audit bad.safetensors

# What is wrong with files and plans is said by name, and is no difference.
refuses 2 "expected a file" audit
refuses 2 "expected a .safetensors or .npy file" audit plan.txt
refuses 4 "cannot read missing.safetensors" audit missing.safetensors
head -c $(($(wc -c <"$record") - 1)) "$record" >cut.safetensors
refuses 4 "offsets inside the data" audit cut.safetensors
head -c 100 "$record" >cut.safetensors
refuses 4 "bytes in a file of 100" audit cut.safetensors
refuses 4 "has the shape (1, 70, 1, 64); the plan has (1, 71, 1, 64)" audit one.safetensors --plan \
    "$("$ORDO" plan --device emulator --machine h200 --seq 71 --dim 64 --dtype f16 --line)"
refuses 4 "is f16; the plan has bf16" audit one.safetensors --plan \
    "$("$ORDO" plan --device emulator --machine h200 --seq 70 --dim 64 --dtype bf16 --line)"
refuses 3 "an audit expects a plan of backend cuda or emulator" audit one.safetensors --plan \
    "$("$ORDO" plan --device cpu --seq 70 --dim 64 --dtype f16 --line)"
refuses 2 'expected "3/f192x128' audit one.safetensors --plan "$(echo "$plan" | sed 's/key=sm90.r3/key=sm90.r9/')"
sed 's/"ordo.plan": "ordo-plan/"ordo.plan": "ordo-plum/' one.safetensors >bad.safetensors
refuses 4 "the record's plan" audit bad.safetensors
for words in seed=x seed=1,offset=0 q-lens=3 colour=red "seed=1 cu-seqlens=0,40" "seed=1 seed=1"; do
    refuses 4 "ordo.inputs: " audit one.safetensors --inputs "$words"
done
refuses 4 "ordo.inputs: no cu-seqlens" audit packed.safetensors --inputs "seed=0 offset=0"
refuses 4 "ordo.inputs: no seed" audit "$record" --inputs "offset=0"
refuses 4 "ordo.inputs: no offset" audit "$record" --inputs "seed=7"
refuses 4 "the record: offset 4294967296: expected less than 2^32" audit "$record" --inputs \
    "seed=7 offset=4294967296"
refuses 3 "a pass with a block mask" audit one.safetensors --inputs "seed=0 block-mask=0123456789abcdef"
refuses 4 "3 numbers separated by commas" audit packed.safetensors --inputs "cu-seqlens=0,107"
finish
