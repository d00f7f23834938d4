# `ordo model`: the fields people rely on, refusals, drawings, comparison with measured times.
. "$ORDO_SOURCE/tests/cli/common.sh"

near() { # name, value, tolerance
    field "$1" | awk -v want="$2" -v most="$3" '{ d = $1 - want; exit !(d <= most && d >= -most) }' ||
        fail "$1 is $(field "$1"), expected $2 within $3"
}

says() { # name, text
    is "$1" "\"$2\""
}

# Every part explains itself, and its examples run.
for part in block what-if kernel grid report overlap validate constants; do
    status 0 model $part --help
    prints "Usage: ordo model $part"
    awk 'length > 100 { exit 1 }' "$out" || fail "$part --help: a line of more than 100 columns"
    sed -n '/^Examples:/,$p' "$out" | sed 1d | sed -e ':a' -e '/\\$/N; s/\\\n *//; ta' |
        grep -v -e --svg >"$work/examples"
    [ -s "$work/examples" ] || fail "$part --help: no examples"
    while read -r line; do
        sh -c "ordo() { \"$ORDO\" \"\$@\"; }; $line" >"$out" 2>"$err" </dev/null ||
            fail "example: $line"
    done <"$work/examples"
done

# The paper's setting.
json model block --machine h100 --precision fp8 --seq 8k --embed 4k --bits 32 --generator compare --overlap all
for name in gemm_ms attention_ms rng_ms sequential_ms fused_ms overlapped_ms pipelined_ms overlapped_over_sequential \
    overlapped_over_fused region recommended limiters machine calibration; do
    [ -n "$(field $name)" ] || fail "no $name"
done
says calibration paper
near overlapped_over_sequential 1.26 0.01
near overlapped_over_fused 1.22 0.01
is region 2
says recommended overlapped
json model block --machine h100 --precision fp8 --seq 32k --embed 12k --bits 32 --generator compare
near overlapped_over_sequential 1.25 0.01
near overlapped_over_fused 1.2 0.01

# ordo's own setting, on silicon.
json model block --seq 8k --embed 4k --causal --backward
says calibration silicon
says state steady
says machine h200
field training >"$work/training"
for name in none_ms sequential_keep_ms sequential_regenerate_ms fused_ms overlapped_keep_ms \
    overlapped_regenerate_ms recommended backward_bits; do
    grep -q "\"$name\": " "$work/training" || fail "--backward: no $name"
done
grep -q '"recommended": "sequential"' "$work/training" || fail "--backward: not sequential"
says recommended sequential
is no_difference true
grep -q '"backward_bits": "keep"' "$work/training" || fail "--backward: bits not kept"
status 0 model block --seq 8k --embed 4k --causal --backward
for line in "  sequential, keep  " "  overlapped, regenerate  " "  recommended: sequential, keep" "recommended: sequential, no difference to overlapped"; do
    prints "$line"
done
status 0 model block --seq 8k --embed 4k --backward --tensor-parallel 4
prints "recommended:"
prints "between ranks"
json model block --seq 8k --embed 4k --state burst
says state burst

json model what-if --seq 8k --embed 4k --set tensor=2x --set alu=1.5x
[ -n "$(field before)" ] && [ -n "$(field after)" ] || fail "what-if: before and after"
status 0 model what-if --machine h100 --seq 8k --embed 4k --set power=1400
prints "what if"

for kernel in "gemm --m 4k --n 4k --k 4k" "attention --heads 16 --seq 4k --keep made" \
    "attention-backward --heads 16 --seq 4k --causal --utilization 0.9" "rng --heads 16 --seq 4k" \
    "memory --read 1e9 --write 1e9"; do
    # shellcheck disable=SC2086
    json model kernel --kernel $kernel
    says kernel "${kernel%% *}"
    # shellcheck disable=SC2086
    status 0 model kernel --kernel $kernel
    prints "bound by"
done
refuses 2 "--causal: does not go with --kernel gemm" model kernel --kernel gemm --m 8 --n 8 --k 8 --causal
refuses 2 "--utilization: does not go with --kernel attention" model kernel --kernel attention --seq 8 --utilization 0.5
refuses 2 "--m: does not go with --kernel attention-backward" model kernel --kernel attention-backward --seq 8 --m 8
refuses 2 "--precision: does not go with --kernel rng" model kernel --kernel rng --seq 8 --precision fp8
refuses 2 "--seq: does not go with --kernel memory" model kernel --kernel memory --read 8 --seq 8
json model kernel --kernel attention --machine host --precision f32 --heads 8 --seq 1k
json model constants --machine h100 --calibration paper
status 0 model constants
prints "gemm_efficiency"

for figure in 5 6 8 9 10 11 12 13 14; do
    json model grid --figure $figure
    is figure $figure
    says machine h100
    status 0 model grid --figure $figure --svg "$work/figure.svg"
    [ -s "$out" ] && fail "--svg: printed something"
    grep -q '^<svg' "$work/figure.svg" && tail -1 "$work/figure.svg" | grep -q '^</svg>' ||
        fail "figure $figure: not a drawing"
done
status 0 model grid --figure 13
prints "-4.7 (3)"
# Any two kernels of a list, also of one that makes no bits.
echo '{"kernels": [{"kind": "gemm", "name": "up", "m": 8192, "n": 4096, "k": 4096, "precision": "bf16"},
    {"kind": "all-reduce", "name": "sum", "bytes": 1e9, "ranks": 8}, {"kind": "measured", "name": "other", "seconds": 1e-4}]}' \
    >"$work/pairs.json"
status 0 model overlap "$work/pairs.json" --pairs
prints "up                     sum"
json model overlap "$work/pairs.json" --pairs
[ "$(grep -c '"together_seconds"' "$out")" -eq 3 ] || fail "--pairs: expected three pairs"
# Figures 6, 10 and 11: run times at 8k x 4k (GEMMs, attention, bits), and those of the bits by rounds.
status 0 model grid --figure 6
prints "1.862 (2)"
prints "0.949 (2)"
prints "0.864 (2)"
refuses 2 "figures 13, cost and speedup show measured values" model grid --figure 6 --measured no.json
status 0 model grid --figure 10
prints "0.586 (2)"
# Cost and speedup: the model's values at 8k x 4k (1.348, 1.305 and 1.070 of no dropout; 1.26 and 1.22),
# and no measurement unless a file has it.
status 0 model grid --figure cost
prints "34.8 (2)"
prints "30.5 (2)"
prints "7.0 (2)"
prints "not measured"
json model grid --figure speedup
says view speedup
says measured "not measured"
grep -qE '"measured": true' "$out" && fail "speedup: measured values without a file"
status 0 model grid --figure 11
prints "0.586 (2)"
prints "1.29 (3)"
# A file with one block, with made-up times: its cell beside the model's, every other one empty.
block_row() { # MODE SECONDS MORE
    echo "{\"kernel\": \"block\", \"precision\": \"bf16\", \"seq\": 8192, \"embed\": 4096, \"rounds\": 7," \
        "\"bits\": 8, \"generator\": \"sliced\", \"mode\": \"$1\", \"seconds\": $2 ${3:-}},"
}
{
    echo '{"machine": "h200", "results": ['
    block_row none 0.004
    block_row sequential 0.005
    block_row fused 0.006
    block_row overlapped-qkv 0.0048
    block_row overlapped 0.0032
    block_row overlapped 0.1 ', "causal": true'
    block_row overlapped 0.1 ', "state": "burst"'
    block_row overlapped 0.1 ', "batch": 2'
    block_row overlapped 0.1 ', "head_dim": 64'
    echo '{"kernel": "memory", "read_bytes": 1e9, "seconds": 1}]}'
} >"$work/block.json"
own="--measured $work/block.json --precision bf16 --bits 8 --generator sliced"
cells() { # FIGURE VALUES: the measured cells of all maps, in order
    # shellcheck disable=SC2086
    status 0 model grid --figure "$1" $own
    got=$(awk '/^measured: / { on = 1; next } /measured cells/ { on = 0 }
        on && $1 ~ /k$/ { for (i = 2; i <= NF; i++) if ($i != "-" && $i + 0 != 0 && $2 != "2k") printf "%s ", $i }' "$out")
    [ "$got" = "$2 " ] || fail "figure $1: measured cells $got, expected $2"
}
cells cost "25.0 50.0 -20.0"
cells speedup "1.56 1.88"
cells 13 "25.0"
# shellcheck disable=SC2086
json model grid --figure speedup $own
says machine h200
says calibration silicon
[ "$(grep -c '"cells": 1,' "$out")" -eq 2 ] || fail "speedup: cells that were measured"
# The mean of model minus measurement is that of the one cell.
json model block --seq 8k --embed 4k
want=$(field overlapped_over_sequential)
# shellcheck disable=SC2086
json model grid --figure speedup $own
awk -v want="${want%,}" '/"mean":/ { sub(/.*: /, ""); d = $0 + 0.005 / 0.0032 - want; exit !(d < 1e-9 && d > -1e-9) }' "$out" ||
    fail "speedup: model minus measurement"
# shellcheck disable=SC2086
status 0 model grid --figure cost $own --svg "$work/figure.svg"
[ "$(grep -c 'not measured</title>' "$work/figure.svg")" -eq 123 ] || fail "cost: cells without a measurement"
grep -q 'nan' "$work/figure.svg" && fail "cost: nan in the drawing"
status 0 model grid --figure speedup --measured "$work/block.json" # fp8, compared: no such row
prints "not measured: the file has no row of these blocks"
status 0 model validate "$work/block.json"
prints "overlapped-qkv"
# Ratios of blocks: of times that are the model's own, times a factor for each mode.
ratios() { # FACTOR: overlapped takes so many times what is predicted
    for mode in sequential fused overlapped; do
        json model block --seq 8k --embed 4k
        ms=$(field ${mode}_ms)
        block_row $mode "$(awk -v ms="${ms%,}" -v f="$([ $mode = overlapped ] && echo "$1" || echo 1)" \
            'BEGIN { printf "%.12g", ms * f / 1000 }')"
    done >"$work/rows"
    { echo '{"machine": "h200", "results": ['; sed '$s/,$/]}/' "$work/rows"; } >"$work/ratios.json"
    status 0 model validate "$work/ratios.json"
}
ratios 1
prints "overlapped over sequential  1 blocks, mean error 0.0 %, standard deviation 0.000; it takes -"
ratios 0.9
prints "overlapped over sequential  1 blocks, mean error 10.0 %"
prints "overlapped over fused       1 blocks, mean error 10.0 %"
refuses 1 "overlapped over fused: mean error 10.0 %" model validate "$work/ratios.json" --most-ratio 2 --json=/dev/null
refuses 2 "--most-ratio -1: expected 0 or more percent" model validate "$work/ratios.json" --most-ratio -1
# Pipelined is priced forward, and in training.
json model block --seq 8k --embed 4k --backward
rows=
for kernel in block training; do
    ms=$(grep -o '"pipelined_ms": [0-9.e-]*' "$out" | sed -n "$([ $kernel = block ] && echo 1 || echo 2)s/.* //p")
    row=$(block_row pipelined "$(awk -v ms="$ms" 'BEGIN { printf "%.12g", ms / 1000 }')")
    rows="$rows$(echo "${row%,}" | sed "s/\"block\"/\"$kernel\"/"),"
done
printf '{"machine": "h200", "results": [%s]}\n' "${rows%,}" >"$work/segments.json"
status 0 model validate "$work/segments.json" --most 0.001
prints "training"
# What measured times recommend: overlapped where it gains more than noise, whatever the model says.
status 0 model block --seq 8k --embed 4k --measured "$work/ratios.json"
prints "recommended: sequential, no difference to overlapped; dropout costs"
prints "recommended: overlapped, 1"
ratios 1.01 # less than two percent faster than sequential
json model block --seq 8k --embed 4k --measured "$work/ratios.json"
tr -d ' \n' <"$out" | grep -qE '"overlapped_qkv_ms":null,"recommended":"sequential","margin":-?0.00[0-9]*,"no_difference":true' ||
    fail "measured times within noise: $(tr -d ' \n' <"$out" | grep -o '"measured":{[^}]*}')"
status 0 model block --seq 8k --embed 4k --precision fp8 --measured "$work/ratios.json"
prints "not measured: the file has no row of this block"
refuses 2 "no such measured.json" model block --seq 8k --embed 4k --measured "$work/no such measured.json"
# Forward and backward: within noise there is no difference.
status 0 model block --seq 8k --embed 4k --backward
prints "  recommended: sequential, keep; no difference to overlapped, keep"
status 0 model block --seq 8k --embed 4k --backward --generator sliced-any --set coresident=1 --set wide_steal=60
prints "  recommended: sequential, keep; no difference to sequential, regenerate"
status 0 model block --seq 8k --embed 4k --backward --generator sliced-any --set coresident=1 --set wide_steal=60 --set noise=0.005
grep -q '^  recommended: sequential, keep$' "$out" || fail "a difference is called none"
json model grid --x seq=2k,8k --y tensor=1x,2x,4x --embed 4k --value dropout_cost
status 0 model report --seq 8k --embed 4k --html "$work/page.html"
grep -q 'id="recommended"' "$work/page.html" || fail "report: no recommendation"
grep -qE 'https?://' "$work/page.html" && ! grep -q 'www.w3.org' "$work/page.html" &&
    fail "report: refers to something outside"

# Lists of kernels: presets have the widths of their models, and files say the same.
json model overlap --preset llama3-8b --seq 8k --causal
says recommended sequential
is no_difference false
is measured false
for name in in_line_seconds fused_seconds recommended_seconds no_difference kernels; do
    [ -n "$(field $name)" ] || fail "overlap: no $name"
done
gemm_is() { # PRESET NAME M N K: a product of the preset takes as long as that one
    json model kernel --kernel gemm --m "$3" --n "$4" --k "$5"
    want=$(field ms)
    json model overlap --preset "$1" --seq 4k
    awk -v name="\"$2\"" -v want="${want%,}" 'index($0, "\"name\": " name) { on = 1 }
        on && /"seconds"/ { sub(/.*: /, ""); d = $0 * 1000 / want - 1; exit !(d < 1e-6 && d > -1e-6) }' "$out" ||
        fail "preset $1: $2 is not $3 x $4 x $5"
}
gemm_is llama3-8b "gate and up" 4k 28672 4096
gemm_is llama3-8b qkv 4k 6144 4096
gemm_is llama3-70b down 4k 8192 28672
gemm_is gpt3 up 4k 49152 12288
gemm_is gpt3 qkv 4k 36864 12288
gemm_is moe "gate and up" 8k 28672 4096
status 0 model overlap --preset llama3-8b --generator sliced-any
status 0 model overlap --preset llama3-70b --tensor-parallel 8
prints "all-reduce 2"
cat >"$work/list.json" <<'EOF'
{"kernels": [
  {"name": "other", "kind": "measured", "seconds": 1e-3, "link": 1, "stream": 1},
  {"name": "step", "kind": "optimizer", "parameters": 2e8},
  {"name": "bits", "kind": "rng", "heads": 32, "seq": 8192},
  {"name": "back", "kind": "attention-backward", "heads": 32, "seq": 8192, "after": ["bits", "other"]}]}
EOF
json model overlap "$work/list.json"
says recommended sequential
json model overlap "$work/list.json" --set gap_share=1
says recommended overlapped
says beside step
"$ORDO" model overlap - --set gap_share=1 <"$work/list.json" >"$out" || fail "overlap: a list from standard input"
prints "from the start of step on"
refuses 2 "expected a file of kernels, or --preset" model overlap
refuses 2 "expected a file of kernels, or --preset" model overlap "$work/list.json" --preset moe
refuses 2 "expected llama3-8b, llama3-70b, gpt3 or moe" model overlap --preset llama9
refuses 2 "expected a divisor of 8 key heads" model overlap --preset llama3-8b --tensor-parallel 3
refuses 2 "no such list" model overlap "$work/no such list"
for option in "--precision fp8" "--batch 2" "--seq 4k" --causal "--tensor-parallel 2" "--rounds 10" "--bits 16" \
    "--generator compare"; do
    # shellcheck disable=SC2086 # an option and its value
    refuses 2 "${option% *}: of presets only" model overlap "$work/list.json" $option
done
wrong() { # TEXT MESSAGE
    echo "$1" >"$work/wrong.json"
    refuses 2 "$2" model overlap "$work/wrong.json"
}
wrong '{}' 'no "kernels"'
wrong '{"kernels": [{"kind": "gem"}]}' 'expected "kind" gemm, attention'
wrong '{"kernels": [{"kind": "gemm", "wide": 3}]}' 'not "wide"'
wrong '{"kernels": [{"kind": "norm", "after": ["x"]}]}' 'no kernel has that name'
wrong '{"kernels": [{"kind": "norm"}, {"kind": "norm"}, {"kind": "rng", "after": ["norm"]}]}' 'more than one kernel has that name'
wrong '{"kernels": [{"kind": "norm", "rows": 1, "width": 1}]}' '0 kernels make keep bits'
wrong '{"kernels": [{"kind": "gemm"}]}' 'kernel 0 (gemm): m 0'
for value in -1 0 2.5 1e15; do
    wrong "{\"kernels\": [{\"kind\": \"gemm\", \"m\": $value}]}" \
        "byte 35 of the JSON: expected a whole number above 0, below 1e15 for \"m\", not $value"
    wrong "{\"kernels\": [{\"kind\": \"rng\", \"seq\": 8, \"heads\": $value}]}" "for \"heads\", not $value"
done
wrong '{"kernels": [{"kind": "gemm", "m": 1e400}]}' 'byte 35 of the JSON: expected a number that a double holds, not 1e400'
wrong '{"kernels": [{"kind": "rng", "stream": -1}]}' '"stream", not -1'
wrong '{"kernels": [{"kind": "rng", "elements": 0}]}' 'expected a number above 0 for "elements", not 0'
wrong '{"kernels": [{"kind": "norm", "rows": -1, "width": -1}]}' 'expected 0 or more for "rows", not -1'
wrong '{"kernels": [{"kind": "measured", "seconds": 1, "memory": 2}]}' 'use 2: expected 0 to 1'

# Measured times: the targets are 5 % for GEMM, RNG and memory, 10 % for attention.
meets() { # FILE KINDS: of those, none past its target
    status 0 model validate "$ORDO_SOURCE/lab/bench/measured/$1"
    prints "mean error"
    awk -v kinds="$2" '/mean error/ { on = 1 } on && /^(gemm|rng|memory) / { n++; if ($3 + 0 > 5) exit 1 }
        on && /^(attention|attention-backward|block|training|part) / { n++; if ($3 + 0 > 10) exit 1 }
        END { exit n != kinds }' "$out" || fail "$1: errors past the targets"
}
meets h200.json 6
meets h200-calibrate.json 4
meets h200-dropout.json 2
meets h200-peers.json 4
meets h200-block.json 2
meets h200-block-paper.json 1
meets h200-ordo-products.json 2
meets h200-rounds.json 2
# Ratios of blocks: overlapped over sequential and over fused.
status 0 model validate "$ORDO_SOURCE/lab/bench/measured/h200-block.json" --most-ratio 2
# Rows that the constants of their kind were not fitted to: every kind of attention but backward passes
# with dropout at 192 and 256, and generators.
status 0 model validate "$ORDO_SOURCE/lab/bench/measured/h200-prices.json" --hold-out --most 5
[ "$(grep -c '^\(forward\|backward\)_[0-9]*_\(plain\|given\|made\) ' "$out")" = 30 ] || fail "not every kind has rows"
# lab/docs/model.md states what validate prints, row by row.
awk -F'|' '/^\| file \|/ { on = 1; next } on && !/^\|/ { exit } on && $3 !~ /---/ {
        if (match($2, /`[^`]*`/)) file = substr($2, RSTART + 1, RLENGTH - 2)
        gsub(/ /, ""); print file, $3, $4, $5, $6 }' "$ORDO_SOURCE/lab/docs/model.md" >"$work/stated"
for file in h200.json h200-calibrate.json h200-dropout.json h200-peers.json h200-block.json h200-block-paper.json h200-ordo-products.json h200-rounds.json neoverse-v1.json; do
    status 0 model validate "$ORDO_SOURCE/lab/bench/measured/$file"
    awk -v file=$file '/rows +mean error/ { on = 1; next } /^$/ { on = 0 }
        on && !/^all / { print file, $1, $2, $3, $4 }' "$out"
done >"$work/printed"
diff "$work/stated" "$work/printed" >&2 || fail "lab/docs/model.md: its table is not what validate prints"

status 1 model validate "$ORDO_SOURCE/lab/bench/measured/h200.json" --most 0 # no prediction is exact
json model validate "$ORDO_SOURCE/lab/bench/measured/h200.json"
says machine h200
# --state acts on rows that do not state theirs, --waves on whole waves: 8 instead of 7.76.
predicted() { # ROW OPTIONS..: of a row of h200.json, in us
    row=$1
    shift
    status 0 model validate "$ORDO_SOURCE/lab/bench/measured/h200.json" "$@"
    awk -v row="$row" 'index($0, row) { for (i = 1; i <= NF; i++) if ($i ~ /%$/) print $(i - 1) }' "$out"
}
ratio() { # A B WANTED: A / B within half a percent
    awk -v a="$1" -v b="$2" -v want="$3" 'BEGIN { r = a / b / want; exit !(r > 0.995 && r < 1.005) }' ||
        fail "validate: $1 over $2 is not $3"
}
steady=$(predicted "bf16 four GEMMs  ") burst=$(predicted "bf16 four GEMMs  " --state burst)
ratio "$steady" "$burst" 1.127
ratio "$(predicted "bf16 proj" --state burst)" "$(predicted "bf16 proj")" 1
ratio "$(predicted "bf16 proj" --waves)" "$(predicted "bf16 proj")" 1.031
refuses 2 "--state" model validate "$ORDO_SOURCE/lab/bench/measured/h200.json" --state fast
refuses 1 "rng: mean error" model validate "$ORDO_SOURCE/lab/bench/measured/h200.json" --most 0.5 --json=/dev/null
status 0 model validate "$ORDO_SOURCE/lab/bench/measured/neoverse-v1.json" --most 10
prints "attention-backward"
# Constants are fitted to half of the rows: of four to the first and the last. Synthetic rows: what
# the model predicts, times a factor for each row.
without="--set forward_192_given=1 --set forward_192_given_start=0"
without="$without --set backward_192_given=1 --set backward_192_given_start=0"
rows() { # FACTORS LENGTH: a file of forward and backward rows of head size 192 with keep bits given
    echo '{"machine": "h200", "results": ['
    for kernel in attention attention-backward; do
        n=1 seq=4096
        for factor in $1; do
            n=$((n * 2)) seq=$((seq * $2))
            echo "{\"kernel\": \"$kernel\", \"batch\": $n, \"heads\": 10, \"seq\": $seq, \"head_dim\": 192," \
                "\"keep\": \"given\", \"seconds\": 1, \"label\": \"$factor\"},"
        done
    done
    echo '{"kernel": "memory", "read_bytes": 1e9, "seconds": 1}]}'
}
synthetic() { # FACTORS LENGTH OPTIONS..: the rows with the times that make the model's errors those factors
    rows "$1" "$2" >"$work/rows.json"
    shift 2
    "$ORDO" model validate "$work/rows.json" "$@" | awk '/^(attention|memory)/ && $NF !~ /%/ { print }' >"$work/said"
    awk 'NR == FNR { if ($1 == "memory") t[++n] = $(NF - 2) / 1e6; else t[++n] = $2 * $(NF - 2) / 1e6; next }
        /"seconds": 1/ { sub(/"seconds": 1/, "\"seconds\": " t[++m]) } { print }' "$work/said" "$work/rows.json" >"$work/synthetic.json"
}
held() { # KIND: constant, mean before and after of the rows that were held out
    awk -v kind="$1" 'on && $1 == kind { print $4, $6, $7 } /^rows that/ { on = 1 }' "$out"
}
synthetic "1.3 1.3 1.3 1.3" 1 $without
status 0 model validate "$work/synthetic.json" --hold-out $without
[ "$(held forward_192_given)" = "1.3000 23.1% 0.0%" ] || fail "hold-out: $(held forward_192_given)"
[ "$(held backward_192_given)" = "1.3000 23.1% 0.0%" ] || fail "hold-out: $(held backward_192_given)"
status 0 model validate "$work/synthetic.json" $without --set forward_192_given=1.3 --set backward_192_given=1.3 --most 0.1
refuses 1 "attention: mean error 23" model validate "$work/synthetic.json" $without --set backward_192_given=1.3 --most 5 --json=/dev/null
# Rows of several lengths tell a factor from a time for every 128 rows.
synthetic "1 1 1 1" 2 $without --set forward_192_given=1.2 --set forward_192_given_start=500
status 0 model validate "$work/synthetic.json" --hold-out $without
awk 'on && $1 == "forward_192_given" { exit !($4 > 1.19 && $4 < 1.21 && $5 > 480 && $5 < 520 && $7 + 0 < 0.2) }
    /^rows that/ { on = 1 }' "$out" || fail "hold-out: not the start that the rows have"
synthetic "1 2 2 1" 1 $without # the rows that are held out take twice as long
status 0 model validate "$work/synthetic.json" --hold-out $without
[ "$(held forward_192_given)" = "1.0000 50.0% 50.0%" ] || fail "hold-out: $(held forward_192_given)"
# With the constants as they stand nothing is fitted: all rows count.
status 0 model validate "$work/synthetic.json" --kinds $without
[ "$(awk '/^kinds of/ { on = 1 } on && $1 == "forward_192_given" { print $2, $3 }' "$out")" = "4 25.0%" ] || fail "kinds"
refuses 1 "forward_192_given: mean error 25.0 %" model validate "$work/synthetic.json" --kinds --most 5 $without --json=/dev/null
refuses 2 "expected one of them" model validate "$work/synthetic.json" --kinds --hold-out
json model validate "$work/synthetic.json" --kinds
grep -q '"kinds"' "$out" || fail "no kinds in the JSON"
refuses 1 "forward_192_given: mean error 50.0 %" model validate "$work/synthetic.json" --hold-out --most 5 $without --json=/dev/null
refuses 1 "memory: no row is held out, of 1" model validate "$work/synthetic.json" --hold-out --most 60 $without --json=/dev/null
json model validate "$work/synthetic.json" --hold-out
"$ORDO" bench attention --seq 128 --heads 2 --seconds 0.05 --json >"$work/bench.json" || fail bench
status 0 model validate "$work/bench.json"
prints "attention-backward"

refuses 2 "unknown option '--drop'; did you mean '--keep'?" model kernel --drop mask
refuses 2 "Try 'ordo model kernel --help'" model kernel --drop mask
refuses 2 'machine "h1000" is unknown' model block --machine h1000 --seq 8k --embed 4k
refuses 3 "states no rate for it" model block --machine a100 --precision fp8 --seq 8k --embed 4k
refuses 3 "instructions are not known" model block --seq 8k --embed 4k --bits 16 --generator swar
refuses 3 "instructions are not known" model block --seq 8k --embed 4k --rounds 6
refuses 2 "--bits 64" model block --seq 8k --embed 4k --bits 64
refuses 2 "--seq 1000000m" model block --seq 1000000m --embed 4k
refuses 2 "expected a divisor of embed" model block --seq 8k --embed 4000
refuses 2 "--embed: missing; expected a number" model block --seq 8k
refuses 2 "did you mean \"tensor\"?" model block --seq 8k --embed 4k --set tensr=2x
refuses 2 "expected NAME=VALUE" model block --seq 8k --embed 4k --set tensor
refuses 2 "is not a number" model block --seq 8k --embed 4k --set alu=fast
refuses 2 "expected at least one change" model what-if --seq 8k --embed 4k
refuses 3 "describes GPUs" model block --machine host --precision f32 --calibration paper --seq 1k --embed 1k
refuses 2 "has no power limit" model block --machine h100 --calibration paper --state burst --seq 1k --embed 1k
refuses 2 "expected a part" model
refuses 2 "did you mean 'grid'?" model gird
refuses 2 "expected --figure N, or two axes" model grid
refuses 2 "--figure 7: expected" model grid --figure 7
refuses 2 "figure 5 does not" model grid --figure 5 --measured "$work/block.json"
refuses 2 "expected --figure 13, cost or speedup" model grid --x seq=2k --y embed=4k --measured "$work/block.json"
refuses 2 "no such measured.json" model grid --figure cost --measured "$work/no such measured.json"
refuses 2 "a figure has its own block" model grid --figure 5 --seq 8k
refuses 2 "--y seq=4k: --x has seq already" model grid --x seq=2k --y seq=4k --embed 4k
refuses 2 "--value speed: unknown" model grid --x seq=2k --y embed=4k --value speed
refuses 2 "expected a file" model validate
refuses 2 "no such file.json" model validate "$work/no such file.json"
echo '{"results": []}' >"$work/empty.json"
refuses 2 'no "results"' model validate "$work/empty.json"
echo '{"results": [{"kernel": "gemm", "m": 1e' >"$work/segments.json"
refuses 2 "expected a number" model validate "$work/segments.json"
echo '{"machine": "h200", "results": [{"kernel": "gemm", "m": 4, "n": 4, "k": 4}]}' >"$work/none.json"
refuses 2 'has no "seconds"' model validate "$work/none.json"
finish
