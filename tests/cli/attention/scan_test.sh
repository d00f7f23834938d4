# ordo scan: on this host's emulator, healthy and with a planted fault (fault_module.c), and on a device that is none; what it refuses.
. "$ORDO_SOURCE/tests/cli/common.sh"
cd "$work" || exit 1
export ORDO_CUDA_MODULE=$work/none.so # a device of this machine is no part of this test
problem="--problem=--seq 130 --heads 2 --dim 64 --dtype bf16 --mask causal"

status 0 scan --device emulator "$problem" --passes 3
prints "device     the emulator of this host"
prints "equal      emulator: every bit of 3 passes"
prints "time       "
prints "compared   0.000786 G scores" # 3 (forward and backward: 2 x 131072)

# Lines of JSON, each of them an object.
status 0 scan --device emulator "$problem" --passes 2 --json
[ "$(wc -l <"$out")" -eq 2 ] || fail "--json: expected a line for the beginning and one for the end"
while read -r line; do
    echo "$line" | "$work/json_check" event >"$work/event" 2>"$err" || fail "--json: no JSON: $line"
done <"$out"
tail -n 1 "$out" >"$work/last" && [ "$("$work/json_check" healthy <"$work/last")" = true ] || fail "healthy"
status 0 scan --device emulator "$problem" --passes 2 --json=scan.jsonl
[ "$(wc -l <scan.jsonl)" -eq 2 ] || fail "--json=FILE"

# The registry, in order, and a limit of time; what the first passes are compared with is the registry's.
if ! "$ORDO" info | grep -qE '\+(asan|tsan|ubsan)'; then
    status 0 scan --device emulator --passes 1 --threads 0
    prints "problems of the registry and 0 drawn ones"
fi
status 0 scan --device emulator "$problem" --seconds 0.3
prints "equal      emulator"

# Ctrl-C ends the passes and prints the table.
"$ORDO" scan --device emulator "$problem" --hours 1 >"$out" 2>"$err" &
child=$!
sleep 1
kill -TERM $child
wait $child
[ $? -eq 130 ] || fail "Ctrl-C: expected exit status 130"
prints "equal      emulator: every bit of "

# One bit of one unit on one of four multiprocessors: found, named, and as often as its probability says.
fault=$ORDO_BUILD/tests/cli/attention/fault_module.so
if [ -e "$fault" ] && ! "$ORDO" info | grep -qE '\+(asan|tsan|ubsan)'; then
    export FAULT_ROW=9
    while IFS='|' read -r processor p passes unit row; do
        FAULT_PROCESSOR=$processor FAULT_P=$p LD_PRELOAD=$fault "$ORDO" scan --device emulator \
            "$problem" --passes "$passes" >"$out" 2>"$err"
        [ $? -eq 1 ] || fail "planted fault: expected exit status 1"
        prints "$unit"
        prints "o, $row, column 5: found "
        prints "; elements that differ: 1"
        prints "           multiprocessor $processor computed this unit"
        # p of one unit per pass: the expected number of passes until a difference is 1 / p.
        expected=$(sed -n "s/.* on multiprocessor $processor: one pass in //p" "$out")
        found=$(sed -n 's/.* found first in pass [0-9]*, then in one of //p' "$out")
        awk -v e="$expected" -v f="$found" -v n="$passes" 'BEGIN {
            d = 1 / f - 1 / e; s = sqrt((1 - 1 / e) / e / n); exit !(d * d <= 16 * s * s + 1e-9) }' ||
            fail "one pass in $expected expected, one in $found found"
    done <<'LINES'
1|1|2|forward unit 1, head 0, rows 64 to 127|row 73, head 0
2|0.2|60|forward unit 2, head 0, rows 128 to 129|row 129, head 0
LINES
    FAULT_PROCESSOR=3 FAULT_P=1 LD_PRELOAD=$fault "$ORDO" scan --device emulator "$problem" --passes 1 \
        --json >"$out" 2>"$err"
    grep '"event": "difference"' "$out" >last
    grep -q "\"unit\": \"forward unit 3, head 1, rows 0 to 63\"" last || fail "--json: unit"
    [ "$("$work/json_check" row <last)" = 9 ] || fail "--json: row"
    grep '"event": "again"' "$out" >last
    [ "$("$work/json_check" multiprocessor <last)" = 3 ] || fail "--json: multiprocessor"
    # A line of the registry: its digests differ, and the emulator names the unit.
    FAULT_PROCESSOR=1 FAULT_P=1 LD_PRELOAD=$fault "$ORDO" scan --device emulator --passes 1 --threads 0 \
        >"$out" 2>"$err"
    [ $? -eq 1 ] || fail "a line of the registry: expected exit status 1"
    prints "forward unit 1, head 0, rows 64 to 127"

    # The way to a device: the memory of fake_module.so is the host's, and the preloaded module has the emulator
    # compute its passes. As a library of the driver's name, it is the driver and NVML.
    mkdir -p fake lib
    cp "$ORDO_BUILD/tests/api/fake_module.so" fake/libordo_cuda.so
    for name in libcuda libnvidia-ml; do cp "$fault" lib/$name.so.1; done
    device() { # exit status, arguments
        ORDO_CUDA_MODULE=$work/fake/libordo_cuda.so LD_LIBRARY_PATH=$work/lib LD_PRELOAD=$fault \
            "$ORDO" scan "$problem" "${@:2}" >"$out" 2>"$err"
        local status=$?
        [ $status -eq "$1" ] || fail "a device, ${*:2}: exit status $status, expected $1"
    }
    device 0 --device all --passes 2
    prints "device     NVIDIA H200, number 0, 132 multiprocessors"
    prints "state      61 to 61 C, 1755 to 1755 MHz, 412 to 412 W"
    prints "equal      device 0: every bit of 2 passes"
    FAULT_PROCESSOR=2 FAULT_P=1 FAULT_ROW=9 device 1 --device 0 --first
    prints "           forward unit 2, head 0, rows 128 to 129"
    prints "           61 C, 1755 MHz, 412 W"
    [ "$(grep -c '^DIFFERENT  device 0, pass ' "$out")" -eq 1 ] || fail "--first: expected one difference"
    if grep -q again "$out"; then fail "again: expected no module that knows units"; fi
    # With a module that knows units beside it, the problem is run there, and the multiprocessor is named.
    cp "$ORDO_BUILD/tests/cli/attention/units_module.so" fake/libordo_cuda_units.so
    FAULT_PROCESSOR=2 FAULT_P=1 FAULT_ROW=9 device 1 --first
    prints "again      different after 1 passes of this problem alone: forward unit 2, head 0, rows 128 to 129"
    prints "           multiprocessor 2 computed this unit"
    [ "$(grep -c '^DIFFERENT  device 0, pass ' "$out")" -eq 2 ] || fail "again: expected one difference of each"
    FAULT_PROCESSOR=2 FAULT_P=1 FAULT_ROW=9 device 1 --first --json=again.jsonl
    [ ! -s "$out" ] || fail "--json=FILE: expected nothing on standard output"
    grep '"event": "again"' again.jsonl >last
    [ "$("$work/json_check" multiprocessor <last)" = 2 ] || fail "--json=FILE: multiprocessor"
    # A device that fails: what was found until then, and why.
    FAULT_FAIL=3 device 4 --passes 4
    prints "FAILED     device 0: "
    FAULT_FAIL=3 device 4 --passes 4 --json=failed.jsonl
    grep -q '"event": "end".*"healthy": false' failed.jsonl || fail "--json=FILE of a device that failed"
    # Keep bits that kernels only read.
    for rule in "--dim 320" "--dim 64 --keying fa2"; do
        problem="--problem=--seq 70 --heads 2 --dtype f16 --dropout 0.1 $rule" device 0 --passes 2
        prints "equal      device 0: every bit of 2 passes"
    done
    # Without NVML, state is left out.
    rm lib/libnvidia-ml.so.1
    device 0 --passes 1
    if grep -q '^state' "$out" && ! ldconfig -p | grep -q libnvidia-ml; then fail "state without NVML"; fi
fi

refuses 3 "--device emulator scans this host's arithmetic" scan
refuses 3 "CUDA module" scan --device all
refuses 2 "--device x: expected the number of a device, all or emulator" scan --device x
refuses 2 "--hours and --seconds: expected one of them" scan --device emulator --hours 1 --seconds 1
refuses 2 "--seconds 0: expected a finite number above 0" scan --seconds 0
refuses 2 "--problem: --batch: expected one dense sequence" scan --device emulator --problem="--seq 8 --batch 2"
refuses 2 "--problem: --dtype f32: expected bf16 or f16" scan --device emulator --problem="--seq 8"
refuses 2 "--problem: expected one problem, no lists" scan --device emulator \
    --problem="--seq 8,16 --dtype bf16"
refuses 2 "unknown option '--sqe'" scan --device emulator --problem="--sqe 8"
status 0 scan --device emulator --seconds 0.1 --problem="--seq 8 --dim 192 --dtype bf16 --dropout 0.1"
finish
