# ordo keep: statistics, rows, files and pictures of keep bits.
. "$ORDO_SOURCE/tests/cli/common.sh"

seed=0x0123456789abcdef
json keep --seq 256 --heads 2 --dropout 0.1 --seed $seed --offset 7
is kept 117671 # a known answer of the generator
is elements 131072
is bytes 16384
is threshold 230
is rounds 7
is keying '"ordo"'
is experiment false
is suspicious false
json keep --seq 256 --heads 2 --dropout 0.1 --rounds 10 --seed $seed --offset 7
is kept 117711
json keep --seq 256 --heads 2 --dropout 0.1 --bits 4 --seed $seed --offset 7
is kept 114610
status 0 keep --seq 256 --heads 2 --dropout 0.1 --seed $seed --offset 7
prints "kept       117671 of 131072"
for lag in "keep rate" columns quads blocks rows heads sites; do
    prints "$lag"
done

# The name of the version before.
status 0 mask --seq 256 --heads 2 --dropout 0.1 --seed $seed --offset 7
prints "kept       117671 of 131072"
grep -q "^ordo: note: mask will not be accepted by the next version; expected keep" "$err" || fail "mask: no note"

# Too few rounds go by another name, come with a warning, and are found out.
refuses 3 "experiment" keep --seq 256 --dropout 0.1 --rounds 3
status 1 keep --seq 256 --heads 2 --dropout 0.1 --experiment-rounds 3 --seed $seed --offset 7
prints "kept       114502 of 131072"
prints "(an experiment)"
prints "SUSPICIOUS"
grep -q "warning: 3 rounds are an experiment" "$err" || fail "no warning about 3 rounds"
status 1 keep --seq 1k --heads 4 --dropout 0.1 --experiment-rounds 5
grep -q "warning: 5 rounds" "$err" || fail "no warning about 5 rounds"

# The same elements as rows, bytes, bits and pictures.
args="--batch 2 --heads 3 --seq 64 --kv-seq 128 --seed $seed --offset 0x100001000 --keying fa2"
status 0 keep $args --dropout 0.1 --dump --sequence 1 --head 2
cp "$out" "$work/rows"
[ "$(wc -l <"$work/rows")" -eq 64 ] || fail "--dump: not 64 rows"
[ "$(tr -d '\n0' <"$work/rows" | wc -c)" -eq 7363 ] || fail "--dump: not FlashAttention-2's count"
status 0 keep $args --dropout 0.1 --export "$work/bytes" --sequence 1 --head 2
prints "kept 7363 of 8192"
tr '\000\001' '01' <"$work/bytes" | fold -w 128 >"$work/folded"
tr -d '\n' <"$work/rows" | fold -w 128 | cmp -s - "$work/folded" || fail "--export differs from --dump"
status 0 keep $args --dropout 0.1 --export "$work/all"
[ "$(wc -c <"$work/all")" -eq $((2 * 3 * 64 * 128)) ] || fail "--export: not every head"
tail -c 8192 "$work/all" | cmp -s - "$work/bytes" || fail "--export: the last head differs"
status 0 keep $args --dropout 0.1 --export - --sequence 1 --head 2
cmp -s "$out" "$work/bytes" || fail "--export -: not the same bytes"
status 0 keep $args --dropout 0.1 --export "$work/bits" --format bits
[ "$(wc -c <"$work/bits")" -eq $((2 * 3 * 64 * 16)) ] || fail "--format bits: wrong size"
status 0 keep $args --dropout 0.1 --dump --rows 3..5 --cols 10..20 --sequence 1 --head 2
[ "$(cat "$out")" = "$(sed -n 4,5p "$work/rows" | cut -c11-20)" ] || fail "--rows, --cols: wrong part"
status 0 keep $args --dropout 0.1 --picture "$work/a.pgm" --sequence 1 --head 2
head -c 15 "$work/a.pgm" | tr '\n' ' ' | grep -q "^P5 128 64 255 " || fail "--picture: no PGM"
tail -c 8192 "$work/a.pgm" | tr '\000\377' '\000\001' | cmp -s - "$work/bytes" || fail "PGM differs"
json keep $args --dropout 0.1 --picture "$work/a.png" --sequence 1 --head 2
is kept 7363
head -c 4 "$work/a.png" | tail -c 3 | grep -q PNG || fail "--picture: no PNG"

# Packed and padded sequences; lists; threads change nothing.
status 0 keep --cu-seqlens 0,0 --heads 2 --dropout 0.1 # no element: nothing to judge
prints "too few to judge"
! grep -q nan "$out" || fail "the statistics of no element"
json keep --cu-seqlens 0,100,356 --heads 2 --dropout 0.2
is elements $((2 * (100 * 100 + 256 * 256)))
json keep --q-lens 20,30 --seq 40 --dropout 0.2
is elements 3200
json keep --seq 64,128 --heads 1,2 --dropout 0.2
[ "$(grep -c '"keep_rate":' "$out")" -eq 4 ] || fail "lists: expected 4 results"
json keep --seq 2k --heads 2 --dropout 0.1 --threads 1
one=$(field kept)
json keep --seq 2k --heads 2 --dropout 0.1 --threads 4
is kept "$one"
status 0 keep --seq 8 --dropout 0.1
prints "too few to judge"

refuses 2 "--dropout: missing" keep --seq 64
refuses 2 "--plan: expected a line with dropout" keep --plan "$("$ORDO" plan --seq 64 --line)"
refuses 2 "--seq: missing" keep --dropout 0.1
refuses 2 "dropout.p 0.001" keep --seq 64 --dropout 0.001
refuses 2 "dropout.rounds 10: expected 7" keep --seq 64 --dropout 0.1 --keying fa2 --rounds 10
refuses 2 "experiment_rounds 3: expected 0" \
    keep --seq 64 --dropout 0.1 --keying fa2 --experiment-rounds 3 --dump
refuses 2 "offset 4294967296" keep --seq 64 --dropout 0.1 --offset 4294967296
refuses 2 "one of them at a time" keep --seq 64 --dropout 0.1 --dump --export x
refuses 2 "expected one problem" keep --seq 64,65 --dropout 0.1 --dump
refuses 2 "expected only with --dump" keep --seq 64 --dropout 0.1 --rows 0..3
refuses 2 "--rows 3..3: expected" keep --seq 64 --dropout 0.1 --dump --rows 3..3
refuses 2 "part.rows 65: expected" keep --seq 64 --dropout 0.1 --dump --rows 0..65
refuses 2 "part.head 1" keep --seq 64 --dropout 0.1 --dump --head 1
refuses 2 "prints rows" keep --seq 64 --dropout 0.1 --dump --json
refuses 2 "standard output is taken" keep --seq 64 --dropout 0.1 --export - --json
refuses 2 "expected at most 2^28" keep --seq 32k --dropout 0.1 --picture "$work/big.png"
[ -e "$work/big.png" ] && fail "a refused picture left a file"
refuses 3 "--force" keep --seq 1m --dropout 0.1
refuses 4 "cannot write" keep --seq 64 --dropout 0.1 --picture "$work/no/such/x.png"

# The other commands know the keying too.
status 0 plan --seq 64 --dropout 0.1 --keying fa2 --device ref
[ "$(digests --seq 16 --dim 8 --dropout 0.4 --device ref --keying ordo)" != \
    "$(digests --seq 16 --dim 8 --dropout 0.4 --device ref --keying fa2)" ] || fail "ordo run ignores --keying"
finish
