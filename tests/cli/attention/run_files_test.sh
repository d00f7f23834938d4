# ordo run: inputs from .npy and .safetensors files, outputs to .npy; files that are not right.
. "$ORDO_SOURCE/tests/cli/common.sh"
cd "$work" || exit 1

# npy DESCR FORTRAN SHAPE BYTES: a file of zeros on stdout
npy() {
    printf '\223NUMPY\001\000\166\000'
    printf '%-117s\n' "{'descr': '$1', 'fortran_order': $2, 'shape': $3, }"
    head -c "$4" /dev/zero
}

# safetensors HEADER: its length and itself on stdout; the data follow
safetensors() {
    length=${#1}
    # shellcheck disable=SC2059 # the format is made of octal escapes
    printf "$(printf '\\%03o\\%03o\\%03o\\000\\000\\000\\000\\000' $((length % 256)) \
        $((length / 256 % 256)) $((length / 65536)))"
    printf '%s' "$1"
}

# Results of one run serve as the inputs of the next.
for dtype in f32 f16 bf16; do
    case $dtype in f32) width=4 kind=f4 name=F32 ;; f16) width=2 kind=f2 name=F16 ;; *) width=2 kind=u2 name=BF16 ;; esac
    status 0 run --batch 2 --seq 9 --kv-seq 12 --heads 4 --kv-heads 2 --dim 8 --v-dim 6 \
        --dtype $dtype --out-dir "$dtype"
    for file in o:2,9,4,6 lse:2,4,9 dq:2,9,4,8 dk:2,12,2,8 dv:2,12,2,6; do
        shape=$(printf %s "${file#*:}" | sed 's/,/, /g')
        head -c 128 "$dtype/${file%%:*}.npy" | tr -d '\000' | grep -aqF "($shape)" ||
            fail "$dtype/${file%%:*}.npy: no shape ($shape)"
    done
    head -c 128 $dtype/o.npy | grep -aqF "'<$kind'" || fail "$dtype/o.npy: not of type <$kind"
    head -c 128 $dtype/lse.npy | grep -aqF "'<f4'" || fail "$dtype/lse.npy: not of type <f4"
    [ "$(wc -c <$dtype/o.npy)" -eq $((128 + 2 * 9 * 4 * 6 * width)) ] || fail "$dtype/o.npy: size"

    files="--q $dtype/dq.npy --k $dtype/dk.npy --v $dtype/dv.npy --dout $dtype/o.npy"
    [ $dtype = bf16 ] && files="$files --dtype bf16"
    # shellcheck disable=SC2086 # a list of words
    first=$(digests $files --mask causal)
    # shellcheck disable=SC2086 # a list of words
    same "$dtype again" "$first" "$(digests $files --mask causal --device cpu --threads 2)"
    # shellcheck disable=SC2086 # a list of words
    same "$dtype, --seed" "$first" "$(digests $files --mask causal --seed 1)"
    # shellcheck disable=SC2086 # a list of words
    same "$dtype, sizes that are typed" "$first" \
        "$(digests $files --batch 2 --seq 9 --kv-seq 12 --heads 4 --kv-heads 2 --dim 8 --v-dim 6 --mask causal)"
    # shellcheck disable=SC2086 # a list of words
    [ "$(digests $files)" = "$first" ] && fail "$dtype: the mask does not matter"

    # The same arrays in one file, in another order, with a stranger among them.
    q=$((2 * 9 * 4 * 8 * width)) k=$((2 * 12 * 2 * 8 * width)) v=$((2 * 12 * 2 * 6 * width))
    o=$((2 * 9 * 4 * 6 * width))
    header='{"__metadata__": {"format": "pt"}, "q": {"dtype": "'$name'", "shape": [2, 9, 4, 8], "data_offsets": ['$((k + 16))', '$((k + 16 + q))']},'
    header=$header'"k":{"dtype":"'$name'","shape":[2,12,2,8],"data_offsets":[0,'$k']}, "other \u00e9\n": {"dtype": "I64", "shape": [2], "data_offsets": ['$k', '$((k + 16))']},'
    header=$header'"v":{"shape":[2,12,2,6],"dtype":"'$name'","data_offsets":['$((k + 16 + q))','$((k + 16 + q + v))']},'
    header=$header'"dout":{"dtype":"'$name'","shape":[2,9,4,6],"data_offsets":['$((k + 16 + q + v))','$((k + 16 + q + v + o))']}}  '
    {
        safetensors "$header"
        tail -c $k $dtype/dk.npy
        head -c 16 /dev/zero
        tail -c $q $dtype/dq.npy
        tail -c $v $dtype/dv.npy
        tail -c $o $dtype/o.npy
    } >$dtype.safetensors
    same "$dtype.safetensors" "$first" "$(digests --input $dtype.safetensors --mask causal)"
done
cp f32.safetensors good.safetensors

# --save: everything in one file, which gives the same results as inputs, and says what it is.
packed='--cu-seqlens 0,5,14 --heads 2 --dim 8 --mask causal --alibi --sinks --dropout 0.5 --seed 3'
# shellcheck disable=SC2086 # a list of words
first=$(digests $packed --dtype f16 --save all.safetensors)
for text in '"ordo.plan": "ordo-plan/1 ' '"ordo.inputs": "seed=3 offset=0 cu-seqlens=0,5,14 cu-seqlens-kv=0,5,14 sinks"' \
    '"lse": {"dtype": "F32", "shape": [2, 14]' '"dv": {"dtype": "F16", "shape": [14, 2, 8]' '"sink": {"dtype": "F32", "shape": [2]'; do
    grep -aqF "$text" all.safetensors || fail "all.safetensors: no $text"
done
# shellcheck disable=SC2086 # a list of words
same "--save, --input" "$first" "$(digests --input all.safetensors $packed)"
refuses 2 "--save: expected one problem" run --seq 8,16 --save none.safetensors
refuses 2 "--save: expected no block mask" run --seq 8 --block-mask documents:4,4 --save none.safetensors
[ -e none.safetensors ] && fail "--save: a refused run wrote a file"

# One key a row: o is v, so elements are where they should be.
for at in 3,1,5,7 1,1,2,16; do
    IFS=, read -r b s h d <<EOF
$at
EOF
    mkdir -p one
    status 0 run --batch "$b" --seq "$s" --heads "$h" --dim "$d" --out-dir one --device ref
    status 0 run --q one/dk.npy --k one/dq.npy --v one/o.npy --out-dir two --device cpu
    cmp -s one/o.npy two/o.npy || fail "$at: o is not v"
done

# Packed and padded.
status 0 run --cu-seqlens 0,5,16 --heads 2 --dim 8 --out-dir packed
head -c 128 packed/o.npy | grep -aqF "(16, 2, 8)" || fail "packed/o.npy: shape"
head -c 128 packed/lse.npy | grep -aqF "(2, 16)" || fail "packed/lse.npy: shape"
status 0 run --cu-seqlens 0,5,16 --q packed/dq.npy --k packed/dk.npy --v packed/dv.npy
refuses 2 "expected (rows, heads, dim)" run --cu-seqlens 0,5,16 --q f32/dq.npy --k f32/dk.npy --v f32/dv.npy
refuses 2 "expected (batch, seq, heads, dim)" run --q packed/dq.npy --k packed/dk.npy --v packed/dv.npy
refuses 2 "and the problem has" run --cu-seqlens 0,5,15 --q packed/dq.npy --k packed/dk.npy --v packed/dv.npy
status 0 run --q-lens 9,3 --kv-lens 12,0 --q f32/dq.npy --k f32/dk.npy --v f32/dv.npy
status 0 run --pass forward --seq 4 --dim 8 --out-dir forward
[ -e forward/lse.npy ] && [ ! -e forward/dq.npy ] || fail "--pass forward: not o and lse alone"
for file in */*.npy.*; do
    [ -e "$file" ] && fail "left behind: $file"
done

# What contradicts itself.
good="--q f32/dq.npy --k f32/dk.npy --v f32/dv.npy"
# shellcheck disable=SC2086 # lists of words
{
    refuses 2 "--heads 3: q of f32/dq.npy has 4, its shape is (2, 9, 4, 8)" run $good --heads 3
    refuses 2 "--seq 10: q of f32/dq.npy has 9" run $good --seq 10
    refuses 2 "--kv-seq 13: k of f32/dk.npy has 12" run $good --kv-seq 13
    refuses 2 "--v-dim 8: v of f32/dv.npy has 6" run $good --v-dim 8
    refuses 2 "--batch: expected one value for inputs from files" run $good --batch 2,3
    refuses 2 "--dtype bf16: q of f32/dq.npy is f32" run $good --dtype bf16
    refuses 2 "dout of f32/dq.npy has 8" run $good --dout f32/dq.npy
    refuses 2 "--q-lens: 3 sequences, and batch is 2" run $good --q-lens 1,2,3
    refuses 2 "expected no --q, --k, --v or --dout" run $good --input good.safetensors
    refuses 2 "k of f16/dk.npy is f16, and q of f32/dq.npy is f32" run --q f32/dq.npy --k f16/dk.npy --v f32/dv.npy
    refuses 2 "--dtype bf16, if that is what they are" run --q bf16/dq.npy --k bf16/dk.npy --v bf16/dv.npy
    refuses 2 "--v: missing" run --q f32/dq.npy --k f32/dk.npy
    refuses 2 "--q: missing" run --dout f32/o.npy --seq 9
    refuses 2 "--out-dir: expected one problem" run --seq 4,5 --out-dir lists
    refuses 4 "cannot make" run --seq 4 --out-dir no/such/place
    refuses 4 "cannot write" run --seq 4 --out-dir f32/o.npy
}

# Files that are not what they say.
bad() { # text, file: as q
    refuses 2 "$1" run --q "$2" --k f32/dk.npy --v f32/dv.npy
}
bad "cannot read missing.npy" missing.npy
bad "not a regular file" .
: >empty.npy
bad "no magic number" empty.npy
head -c 100 /dev/zero >zero.npy
bad "no magic number" zero.npy
head -c 60 f32/dq.npy >short.npy
bad "truncated: a header of 118 bytes, and 50 left" short.npy
head -c 2000 f32/dq.npy >cut.npy
bad "truncated: 1872 bytes of data, and its shape asks for 2304" cut.npy
{ cat f32/dq.npy; echo; } >long.npy
bad "too long: 2305 bytes" long.npy
{ printf '\223NUMPY\001\000\377\377'; head -c 500 /dev/zero; } >header.npy
bad "truncated: a header of 65535" header.npy
{ printf '\223NUMPY\002\000\377\377\377\377'; head -c 500 /dev/zero; } >header.npy
bad "a header of 4294967295 bytes: expected at most" header.npy
{ printf '\223NUMPY\007\000\166\000'; tail -c +11 f32/dq.npy; } >version.npy
bad "version 7.0" version.npy
npy '>f4' False '(2, 9, 4, 8)' 2304 >x.npy
bad "descr '>f4': big-endian" x.npy
npy '<f4' True '(2, 9, 4, 8)' 2304 >x.npy
bad "fortran_order True: expected C order" x.npy
npy '<f8' False '(2, 9, 4, 8)' 4608 >x.npy
bad "descr '<f8': expected" x.npy
npy '<f4' Maybe '(2, 9, 4, 8)' 2304 >x.npy
bad "fortran_order: expected True or False" x.npy
npy '<f4' False '(2, 9, 4, -8)' 2304 >x.npy
bad "shape: expected whole numbers" x.npy
npy '<f4' False '(2, 9, 4, 8' 2304 >x.npy
bad "shape: expected whole numbers" x.npy
npy '<f4' False '(2 9, 4, 8)' 2304 >x.npy
bad "its header is no dictionary: expected ','" x.npy
npy '<f4' False '(2, 9, 4, 8), } x {' 2304 >x.npy
bad "its header goes on after the dictionary" x.npy
npy '<f4' False '(4294967296, 4294967296, 4, 8)' 0 >x.npy
bad "more than 2^62 bytes" x.npy
npy '<f4' False '(99999999999999999999, 1, 1, 1)' 0 >x.npy
bad "a number past 2^63" x.npy
npy '<f4' False '(1, 1, 1, 1, 1, 1, 1, 1, 1)' 4 >x.npy
bad "more than 8 dimensions" x.npy
npy '<f4' False '(0, 9, 4, 8)' 0 >x.npy
bad "expected sizes of 1 or more" x.npy
npy '<f4' False '(72, 8)' 2304 >x.npy
bad "shape (72, 8), expected (batch, seq, heads, dim)" x.npy
npy "<f4', 'descr': '<f4" False '(2, 9, 4, 8)' 2304 >x.npy
bad "twice 'descr'" x.npy
npy "<f4', 'colour': '<f4" False '(2, 9, 4, 8)' 2304 >x.npy
bad "an unknown key 'colour'" x.npy

# The same for .safetensors: a header over 16 bytes of data.
tensors() { # text, header
    { safetensors "$2"; head -c 16 /dev/zero; } >x.safetensors
    refuses 2 "$1" run --input x.safetensors
}
x='"dtype":"F32","shape":[1,1,1,4],"data_offsets":[0,16]'
tensors "no array named k" '{"q":{'$x'}}'
tensors "does not start with {" '[]'
tensors "does not start with {" ' {"q":{'$x'}}'
tensors "its arrays take 0" '{}'
tensors "expected nothing more" '{"q":{'$x'}} x'
tensors "expected a comma or }" '{"q":{'$x'}'
tensors "expected a string" '{"q":{'$x'},}'
tensors "expected a colon" '{"q"}'
tensors "expected the end of a string" '{"q'
tensors "expected an escape" '{"\q":1}'
tensors "expected four hexadecimal digits" '{"\u12g4":1}'
tensors "the second half of a pair" '{"\ud800x":1}'
tensors "the first half of a pair" '{"\udc00":1}'
tensors "expected a printable character" "$(printf '{"q\001":1}')"
tensors "expected a printable character" "$(printf '{"q\303":1}')"
tensors "expected an object" '{"q":1}'
tensors "each once" '{"q":{"dtype":"F32","dtype":"F32"}}'
tensors "each once" '{"q":{"strange":"F32"}}'
tensors "dtype, shape and data_offsets before this" '{"q":{"dtype":"F32","shape":[4]}}'
tensors "no second array of the same name" '{"q":{'$x'},"q":{'$x'}}'
tensors "offsets inside the data" '{"q":{"dtype":"F32","shape":[1,1,1,5],"data_offsets":[0,20]}}'
tensors "offsets inside the data" '{"q":{"dtype":"F32","shape":[0],"data_offsets":[16,0]}}'
tensors "offsets that fit the shape" '{"q":{"dtype":"F32","shape":[1,1,1,3],"data_offsets":[0,16]}}'
tensors "expected two offsets" '{"q":{"dtype":"F32","shape":[4],"data_offsets":[0,16,32]}}'
tensors "expected two offsets" '{"q":{"dtype":"F32","shape":[4],"data_offsets":[0]}}'
tensors "expected a whole number" '{"q":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}}'
tensors "without leading zeros" '{"q":{"dtype":"F32","shape":[04],"data_offsets":[0,16]}}'
tensors "a number below 2^63" '{"q":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,16]}}'
tensors "less than 2^62 bytes" '{"q":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]}}'
tensors "at most 8 dimensions" '{"q":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,16]}}'
tensors "as F32, F16 or BF16 before this, not F64" '{"q":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}}'
tensors "as F32, F16 or BF16 before this, not F4" '{"q":{"dtype":"F4","shape":[2],"data_offsets":[0,16]}}'
tensors "a hole or overlap" '{"q":{'$x'},"k":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}'
tensors "a hole or overlap" '{"q":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}'
tensors "16 bytes of data, and its arrays take 8" '{"q":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
head -c 7 good.safetensors >x.safetensors
refuses 2 "shorter than 8 bytes" run --input x.safetensors
head -c 100 good.safetensors >x.safetensors
refuses 2 "bytes in a file of 100" run --input x.safetensors
printf '\377\377\377\377\377\377\377\377{}' >x.safetensors
refuses 2 "a header of 18446744073709551615 bytes in a file of 10" run --input x.safetensors
size=$(wc -c <good.safetensors)
head -c $((size - 1)) good.safetensors >x.safetensors
refuses 2 "offsets inside the data" run --input x.safetensors
refuses 2 "cannot read" run --input missing.safetensors
finish
