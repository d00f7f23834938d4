# ordo io: known words, all algorithms, caches, sweeps, devices, and what it refuses.
. "$ORDO_SOURCE/tests/cli/common.sh"

# Tiles in the order of the table of anchors, words counted: pass algorithm tiles loads stores.
while read -r pass algorithm tiles loads stores; do
    json io --pass "$pass" --algorithm "$algorithm" --n 96 --d 32 --cache 700 --tile-sizes "$tiles"
    is loads "$loads"
    is stores "$stores"
    is predicted_loads "$loads"
    is predicted_stores "$stores"
    is total $((loads + stores))
done <<'END'
forward flash 9 70656 3168
forward mat 24,25,16,32 52320 12384
forward fused 24,24 46080 12384
backward flash 4 235008 79968
backward apart 4,6 268992 9312
backward phase 20,32,20,20,32 138816 27744
backward fused 24,12 158208 49248
END
json io --pass backward --algorithm phase --n 96 --d 32 --cache 700 --tile-sizes 20,32,20,20,32 --mask causal
is loads 93056
is stores 22624
for name in algorithm tiles loads stores total predicted_loads predicted_stores peak bound \
    bound_name ratio error; do
    [ -n "$(field "$name")" ] || fail "no field $name"
done

# The algorithm has a new name; the old one is noted.
status 0 io --pass backward --algorithm split --n 96 --d 32 --cache 700 --tile-sizes 4,6 --json
grep -q '"algorithm": "apart"' "$out" || fail "--algorithm split: another algorithm"
grep -q "note: --algorithm split will not be accepted by the next version; expected apart" "$err" || fail "--algorithm split: no note"

# Block masks: a run whose words are those of the closed form, and the form of sparse inputs with as
# many live scores. Four chunks of a causal mask are four sequences.
json io --pass backward --n 256 --d 32 --cache 700 --algorithm phase --mask causal --block-mask chunk:64 --block 32 \
    --sparse
chunked=$(field loads)
is predicted_loads "$chunked"
case $(field sparse_form) in 28242.*) ;; *) fail "sparse_form is $(field sparse_form)" ;; esac # n d sqrt(4 * 64 * 65 / 2 / M)
json io --pass backward --n 256 --d 32 --cache 700 --algorithm phase --mask causal --sparse
[ "$chunked" -lt "$(field loads)" ] || fail "a block mask saves no loads"
json io --n 256 --d 32 --cache 1k --mask causal --block-mask documents:256 --block 32
whole=$(field total)
json io --n 256 --d 32 --cache 1k --mask causal
is total "$whole"
status 0 io --n 256 --d 32 --cache 1k --block-mask chunk:128 --sparse
prints "no bound of this mask"
refuses 2 "--block: goes with --block-mask" io --n 256 --d 32 --cache 1k --block 32
refuses 2 "chunk:x: expected columns" io --n 256 --d 32 --cache 1k --block-mask chunk:x
refuses 2 "expected at most 2^26" io --n 16m --d 32 --cache 1k --block-mask chunk:1k

json io --pass backward --n 96 --d 32 --cache 512
is algorithm '"phase"'
is bound_name '"products"'
is regime '"small"'
[ "$(grep -c '"holds": ' "$out")" -eq 6 ] || fail "expected every bound"
# The text has the regime, every bound with its ratio, and what the bound of the gradient assumes.
status 0 io --pass gradient --algorithm phase --n 512 --d 64 --cache 1k --predict
prints "regime     small cache: M = 0.25 d^2"
prints "asymptotic-small"
prints "if each entry of o is computed once; the best"
status 0 io --pass gradient --algorithm phase --n 4k --d 64 --cache 1k --predict
prints "always; the best"
json io --pass gradient --n 32 --d 8 --cache 100
json io --algorithm all --n 64 --d 16 --cache 200 --mask causal --window 20,0 --dropout 0.1 --heads 4 --kv-heads 2 --dv 8 --kv 70
[ "$(grep -c '"algorithm":' "$out")" -eq 5 ] || fail "--algorithm all: expected 5 forward algorithms"
json io --algorithm fused --n 64 --d 16 --cache 256 --model lru --budget 0.85
json io --algorithm fused --n 64 --d 16 --cache 256 --model assoc:8,4 --pack --strip 8 --budget 0.5
json io --algorithm fused --n 64 --d 16 --cache 256 --model opt
json io --algorithm fused --n 64 --d 16 --cache 256 --model lru --outer 2k
[ "$(field loads)" -lt "$(field inner_loads)" ] || fail "the second level catches nothing"
json io --algorithm flash --n 1m --d 128 --cache 100k --predict
is loads null

# Words as multiples of the bound.
status 0 io --pass backward --n 512 --d 32 --sweep cache=128..16k --ratio --svg "$work/ratio.svg"
grep -q 'words moved / lower bound' "$work/ratio.svg" || fail "--ratio: another axis"
refuses 2 "--ratio: expected only with --sweep and --svg" io --n 64 --d 16 --cache 256 --ratio
# The sweep: every algorithm, the bound, and the crossover on one plot.
status 0 io --pass backward --n 4k --d 64 --sweep cache=512..64k --svg "$work/plot.svg"
for part in phase fused apart flash 'lower bound' 'flash from 1.' '</svg>'; do
    grep -qF -- "$part" "$work/plot.svg" || fail "no '$part' in the plot"
done
json io --n 1k --d 64 --sweep cache=1k..4k
[ "$(grep -c '"algorithm": "flash"' "$out")" -eq 17 ] || fail "expected 8 points an octave"
grep -q '"message"' "$out" && fail "a sweep tried an algorithm that the pass does not have"
json io --n 1k --d 64 --sweep cache=1k..4k --algorithm fused
grep '"algorithm"' "$out" | grep -qv fused && fail "a sweep of one algorithm shows another"
refuses 3 'none of that name' io --algorithm phase --n 1k --d 64 --sweep cache=1k..4k

json io --devices
status 0 io --devices
prints '64x80'
prints 'h200            shared'
prints 'ascend          operand'
json io --devices --machine h200

# The forms of the backward pass over head size: known bytes and rates; measured only from a file.
refuses 2 "--mask: does not go with --crossover" io --crossover --mask causal
refuses 2 "--cache: does not go with --devices" io --devices --cache 1k
status 0 io --crossover
prints '  512  102.4   83.2   66.0  phase  phase    451    555    700         -      -      -'
prints 'fewer bytes than flash from head size 232 to 256, in chains, and from head size 344 on.'
prints 'has the higher rate at most from head size 344 on.'
prints 'Not measured: --measured FILE'
json io --crossover --machine h200
is chains_to 256
is fewer_bytes_in_chains_from 232
is fewer_bytes_from 344
is measured '"not measured"'
[ "$(grep -c '"head_dim"' "$out")" -eq 15 ] || fail "--crossover: expected 15 head sizes"
forms=$ORDO_SOURCE/lab/bench/measured/h200-forms.json
status 0 io --crossover --measured "$forms"
# Where forms were measured in turns, those figures count, else that of the form in use.
prints '  256   25.6   20.8   24.0  phase  phase    854    610    854         -    436    639'
prints '  512  102.4   83.2   66.0  phase  phase    451    555    700         -      -    558'
prints 'Measured at 128: phase runs at 0.72 of the rate of flash.'
prints 'Measured at 256: phase runs at 1.47 of the rate of apart.'
counted=$ORDO_SOURCE/lab/bench/measured/h200-counters.json
status 0 io --crossover --counted "$counted"
prints 'Counted at 256: phase moves 24.57 bytes per score, 1.02 of the model'
prints 'Counted at 192: apart moves 18.55 bytes per score, 1.55 of the model'
json io --crossover --counted "$counted"
tr -d ' \n' <"$out" | grep -qF '"counted_bytes_per_score":{"flash":null,"apart":24.6' || fail "--counted: JSON"
echo '{"rows": [{"dim": 192, "v_dim": 128, "seq": 8192, "mask": "full", "form": "phase", "pass": "backward",
    "figures": {"sm": 17.0}}, {"dim": 256, "seq": 8192, "mask": "full", "form": "phase", "pass": "forward",
    "figures": {"sm": 9.0}}, {"dim": 512, "seq": 8192, "mask": "full", "form": "phase", "pass": "backward",
    "figures": {"sm": null}}]}' >"$work/others.json"
status 0 io --crossover --counted "$work/others.json" # two head sizes; forward; not counted
grep -q Counted "$out" && fail "--counted: took a row that is not of the crossover"
status 0 io --crossover --measured "$forms" --counted "$counted" --svg "$work/forms.svg"
[ -s "$out" ] && fail "--crossover --svg: printed something"
[ "$(grep -c 'TFLOP/s measured' "$work/forms.svg")" -eq 12 ] || fail "--crossover: measured points"
[ "$(grep -c 'score counted' "$work/forms.svg")" -eq 9 ] || fail "--crossover: counted points"
cmp -s "$work/forms.svg" "$ORDO_SOURCE/lab/docs/pictures/io-crossover.svg" ||
    fail "lab/docs/pictures/io-crossover.svg is not what the command draws"
echo '{"rows": [{"dim": 512, "seq": 4096, "mask": "full", "figures": {"ours_bwd": 1}}]}' >"$work/other.json"
status 0 io --crossover --measured "$work/other.json"
prints 'Not measured: the file has no row'
echo '{"results": []}' >"$work/none.json"
refuses 2 'expected "rows"' io --crossover --measured "$work/none.json"
refuses 2 'no such forms.json' io --crossover --measured "$work/no such forms.json"
refuses 2 '--measured: goes with --crossover' io --devices --measured "$forms"
refuses 2 '--counted: goes with --crossover' io --devices --counted "$counted"
# Bytes of HBM: the form that ordo uses, and what the kernels of one move.
json io --hbm --pass backward --n 1k --d 128 --heads 4
is form '"flash"'
is pass '"backward"'
for name in read_bytes written_bytes least_bytes most_bytes bytes_per_score; do
    [ -n "$(field "$name")" ] || fail "--hbm: no field $name"
done
is least_bytes $(($(field read_bytes | head -1) + $(field written_bytes | head -1))) # all of it fits
json io --hbm --n 512 --d 320
is form '"phase"'
status 0 io --hbm --pass backward --algorithm apart --n 512 --d 192 --batch 2
prints 'queries'
prints 'without L2'
line=$("$ORDO" plan --device cuda --machine h200 --dtype bf16 --heads 4 --seq 1k --dim 128 --mask causal --order spt --line)
json io --hbm --plan "$line"
for name in order read_bytes chains_ns ns; do
    [ -n "$(field "$name")" ] || fail "--hbm --plan: no field $name"
done
refuses 2 '--plan: states the problem' io --hbm --plan "$line" --n 512
refuses 2 '--plan: goes with --hbm' io --plan "$line"
refuses 2 'expected flash, apart, phase or best' io --hbm --n 512 --d 192 --algorithm all
refuses 2 '--n: missing' io --hbm --d 192
refuses 2 '--batch: goes with --hbm' io --n 4 --d 4 --cache 100 --batch 2
for option in '--cache 1m' '--sweep cache=1k..2k' '--svg x.svg' '--budget 0.5' '--strip 2' --predict '--model lru'; do
    refuses 2 'the cache and the tiles are the machine' io --hbm --pass backward --n 512 --d 128 $option
done
json io --hbm --pass backward --n 512 --d 192 # in chains
is form '"phase"'
grep -q '"name": "chains"' "$out" || fail "--hbm: expected chains at head size 192"
status 0 io --hbm --pass backward --n 512 --d 192 --dv 128
prints 'head size 192, values 128'
refuses 3 'v_head_dim 256: expected head_dim, 320' io --hbm --pass backward --n 512 --d 320 --dv 256
refuses 2 'replays full masks' io --hbm --n 512 --d 128 --window 4,0
refuses 3 'expected a dense layout and a full mask' io --hbm --pass backward --n 512 --d 128 --mask causal
refuses 3 'expected backward by flash' io --hbm --n 512 --d 128 --algorithm flash
refuses 2 '--devices, --crossover and --hbm' io --devices --crossover
refuses 3 'expected cuda_arch 90' io --crossover --machine a100
refuses 2 '--machine: goes with --devices, --crossover and --hbm' io --n 4 --d 4 --cache 100 --machine h200

json plan --seq 8k --heads 2 --dim 256 --dtype bf16 --machine h200 --memory
[ "$(grep -c '"level":' "$out")" -eq 6 ] || fail "--memory: expected three levels of two passes"
status 0 plan --seq 1k --dim 64 --memory
prints 'what moves the fewest words'

refuses 2 '--n: missing' io --d 4 --cache 100
refuses 2 '--cache: missing' io --n 4 --d 4
refuses 2 'expected best, naive' io --n 4 --d 4 --cache 100 --algorithm slash
refuses 2 'phase expects' io --pass backward --algorithm phase --n 96 --d 32 --cache 700 --tile-sizes 3,4
refuses 2 '--tile-sizes' io --n 96 --d 32 --cache 700 --tile-sizes 3,4
refuses 2 '--model what' io --n 96 --d 32 --cache 700 --model what
refuses 2 'outer_words 100' io --n 96 --d 32 --cache 700 --model lru --outer 100
refuses 2 '--outer' io --n 96 --d 32 --cache 700 --outer 1k
refuses 2 '--budget -1: expected a part of M' io --n 96 --d 32 --cache 700 --model lru --budget -1
refuses 2 '--budget 0: expected a part of M' io --n 96 --d 32 --cache 700 --model lru --budget 0
refuses 2 '--budget 17: expected a part of M' io --n 96 --d 32 --cache 700 --model opt --budget 17
refuses 2 '--budget' io --n 96 --d 32 --cache 700 --budget -1
refuses 2 'line 3' io --n 96 --d 32 --cache 700 --model lru:3
refuses 2 '--sweep' io --n 96 --d 32 --sweep cache=9
refuses 2 '--svg' io --n 96 --d 32 --cache 700 --svg x.svg
refuses 3 'too small for any tile' io --pass backward --algorithm flash --n 96 --d 32 --cache 70
refuses 3 'these tiles of fused need' io --algorithm fused --n 96 --d 32 --cache 70 --tile-sizes 90,90
refuses 3 'none of that name' io --pass forward --algorithm phase --n 96 --d 32 --cache 700
refuses 3 'predictions have no such limit' io --algorithm flash --n 16m --d 64 --cache 700
# A trace that cannot fit is refused before the oracle or the trace is made: at once.
refuses 3 'and a trace holds 268435456' io --n 8k --d 128 --cache 1k --model opt
refuses 3 'expected fewer rows' io --pass backward --n 16k --d 64 --cache 1k --model opt:8 --pack --algorithm flash
refuses 2 '63 bits' io --algorithm flash --n 16m --d 65536 --cache 1m
finish
