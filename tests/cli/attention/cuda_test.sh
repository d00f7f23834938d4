# The command with --device cuda: clear words without a GPU; with a fake one, everything around the
# kernels: inputs go up, outputs come back, reports are those of other backends.
. "$ORDO_SOURCE/tests/cli/common.sh"

shape="--device cuda --dtype bf16 --heads 4 --kv-heads 2 --seq 100 --kv-seq 150"
small="$shape --batch 2 --mask causal"

# No module, no kernels, no driver: the reason, and exit status 3.
export ORDO_CUDA_MODULE=/no/such/module.so
for command in run verify "bench attention"; do
    # shellcheck disable=SC2086 # lists of words
    refuses 3 "backend cuda: CUDA module: /no/such/module.so" $command $small
done
refuses 3 "backend cuda: CUDA module: /no/such" run --machine h200 --dtype bf16 --seq 8
refuses 3 "backend cuda: machine host is a CPU" plan --device cuda --dtype bf16 --seq 8
status 0 info
grep -q '^  cuda *no: backend cuda: CUDA module: /no/such' "$out" || fail "info does not say why not"

export ORDO_CUDA_MODULE=$ORDO_BUILD/tests/api/fake_module.so
[ -e "$ORDO_CUDA_MODULE" ] || { echo "no fake module"; exit 77; }
# shellcheck disable=SC2086 # a list of words
FAKE_CAPABILITY=80 refuses 3 "has compute capability 8.0, expected sm90" run $small

# shellcheck disable=SC2086 # a list of words
{
    # A device plans for itself.
    json plan $small
    grep -q ' workers=132 ' "$out" || fail "plan: not the device's workers"
    FAKE_WORKERS=78 status 0 plan $small
    prints "78 workers"

    # Its passes copy: o is q and so on, so each sequence has its own inputs' digests.
    json run $small --sequences
    two=$(field sequences | tr -d ' \n')
    json run $shape --mask causal --sequences
    one=$(field sequences | tr -d ' \n[]')
    case $two in "[$one,"*) ;; *) fail "the first sequence differs from itself alone" ;; esac
    status 0 run $small --pass forward
    prints "backend    cuda"
    refuses 2 "--threads: backend cuda has none" run $small --threads 2
    refuses 3 "head_dim 60: backend cuda expects a multiple of 8" run $small --dim 60
    status 0 run --device cuda --dtype f16 --seq 8

    # The lists of a block mask go to the device: chunks longer than the sequence hide nothing.
    FAKE_ATTENTION=1 json run $shape --mask causal
    causal=$(field digests)
    FAKE_ATTENTION=1 json run $shape --mask causal --block-mask chunk:4096
    [ "$(field digests)" = "$causal" ] || fail "long chunks are not the causal mask"
    FAKE_ATTENTION=1 json run $shape --mask causal --block-mask chunk:8
    [ "$(field digests)" != "$causal" ] || fail "chunks hide nothing"
    status 0 verify --device cuda --dtype bf16 --cu-seqlens 0,8,8,30 --repeats 1
    status 0 verify $small --dropout 0.1 --repeats 1
    prints "the batch in reverse order  "
    status 0 run $small --dropout 0.17 --pass forward
    status 0 bench attention $small --dropout 0.1 --seconds 0.001
    [ "$(grep -c '^  bits  .* 28672 bytes made before the passes' "$out")" -eq 1 ] || fail "bench: no row of bits"
    json bench attention $small --dropout 0.1 --pass forward --seconds 0.001
    grep -q '"bits_seconds": {' "$out" || fail "bench: no time of bits"
    for mode in "--backward-bits regenerate" "--dropout-mode fused"; do
        status 0 bench attention $small --dropout 0.1 $mode --seconds 0.001
        prints "; dropout $(case $mode in *fused) echo fused ;; *) echo sequential, regenerate ;; esac)"
        grep -q '^  bits ' "$out" && fail "bench: bits beside passes that make them, $mode"
    done
    refuses 2 "--dropout-mode sequential: backend cpu makes keep bits inside the passes" run --seq 8 \
        --device cpu --dropout 0.1 --dropout-mode sequential
    refuses 2 "--backward-bits: with dropout mode fused" run $small --dropout 0.1 \
        --dropout-mode fused --backward-bits keep
    refuses 2 "--backward-bits: with dropout mode fused" run --seq 8 --device cpu --dropout 0.1 \
        --backward-bits regenerate
    refuses 2 "--dropout-mode given: expected sequential|fused" run $small --dropout-mode given
    refuses 3 "dropout.keying fa2: backend cuda expects bits" run $small --dropout 0.1 --keying fa2 \
        --dropout-mode fused
    status 0 verify $small --dropout 0.1 --repeats 1 --dropout-mode fused
    prints "dropout    fused"
    prints "  dropout sequential, keep  "
    prints "  dropout sequential, regenerate  "
    segments=$(line --device cuda --dtype bf16 --seq 300 --dim 128 --dropout 0.1 --segments 3)
    status 0 verify --plan "$segments" --repeats 1 --dropout-mode pipelined
    prints "dropout    pipelined, 3 segments"
    status 0 bench attention --plan "$segments" --seconds 0.001
    prints "; dropout pipelined"
    status 0 verify $small --dropout 0.1 --keying fa2 --repeats 1
    prints "not run: bits of keying fa2 are read"
    for backward in keep regenerate; do
        json run $small --dropout 0.1 --backward-bits $backward
        is dropout_mode '"sequential"'
        is backward_bits "\"$backward\""
    done
    grep -q '"workers": 132' "$out" || fail "run: no workers"

    # Every layout, type and rule goes through.
    status 0 verify --device cuda --dtype f16 --q-lens 5,30,0 --kv-lens 9,30,4 --seq 30 --heads 2 \
        --mask causal --window 7,0 --softcap 20 --alibi --dropout 0.1 --dim 96 --repeats 1

    # Grids, a busy device, the batch, another process.
    status 0 verify $small
    for row in "  132 workers  " "  114 workers  " "  78 workers  " "  32 workers  " \
        "  32 workers, device under load          2   equal" "each sequence alone  " \
        "the batch in reverse order  " "another process  " "backend    cuda, 132 workers" \
        "every bit equal"; do
        prints "$row"
    done
    grep -qE "thread|target|delay|not run" "$out" && fail "verify: words of the cpu backend"
    status 0 verify --plan "$(line $small --workers 100)" --grids 50,200 --repeats 3
    grep -q "^  50 workers  *3 " "$out" || fail "--grids: no row of 50"
    grep -q "^  200 workers" "$out" && fail "--grids: a grid larger than the first"
    refuses 2 "--grids: only backend cuda" verify --seq 8 --device cpu --grids 3
    status 0 verify --plan "$(line $shape --order shift --group 40)" --grids 32 --repeats 1
    grep -q "^  32 workers .* not run: order shift, group 40: " "$out" && fail "--group 40: 2 tiles"
    status 0 verify --plan "$(line --device cuda --dtype bf16 --seq 5k --order shift --group 40)" --grids 32 --repeats 1
    prints "not run: order shift, group 40: 40 chains must be resident together, workers 32"
    status 0 verify $small --repeats 1 --write "$work/kept.txt"
    status 0 verify --plan "$(line $small --workers 78)" --repeats 1 --expect "$work/kept.txt"

    # One wrong bit in the fifth pass: the first of two on the third grid.
    FAKE_FLIP=5 status 1 verify $small
    grep -A1 "^  78 workers .* DIFFERENT" "$out" |
        grep -q "dq, sequence 0, row 5, head 0, column 0: 0x" || fail "FAKE_FLIP: not found"
    [ "$(grep -c DIFFERENT "$out")" -eq 2 ] || fail "FAKE_FLIP: expected one row and the sum"

    # 4 (10) x pairs x dim x heads x batch, half of it if causal.
    json bench attention $small --seconds 0.001
    [ "$(grep -o '"flops": [0-9]*' "$out" | tr -d '\n')" = \
        "\"flops\": $((4 * 100 * 150 * 64 * 4))\"flops\": $((10 * 100 * 150 * 64 * 4))" ] ||
        fail "operations of a causal mask"
    grep -q '"workers": 132' "$out" || fail "bench: no workers"
    grep -o '"[a-z]*": "[0-9a-f]\{16\}"' "$out" >"$work/bench"
    json run $small
    grep -o '"[a-z]*": "[0-9a-f]\{16\}"' "$out" | cmp -s - "$work/bench" ||
        fail "bench: digests are not those of ordo run"
    status 0 bench attention $shape --pass backward --seconds 0.001
    prints "TFLOP/s"
    [ "$(grep -c '^  backward *132 ' "$out")" -eq 1 ] || fail "bench: no row"
}
finish
