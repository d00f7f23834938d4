# Every numeric option of every command, as its help lists them, refuses what is no number for it:
# exit status 2, nothing printed, the option named.
. "$ORDO_SOURCE/tests/cli/common.sh"

# Options that take 0, any sign, and numbers of any size.
zero=" --softcap --dropout --seed --offset --q-lens --kv-lens --delay --latency --overlap \
--sequence --head --read --write --most --most-ratio --link-us --keep-bits-memory "
negative=" --scale "
huge=" --scale --softcap --read --write --most --most-ratio "

takes() { # list of options, option
    case " $1 " in *" $2 "*) true ;; *) false ;; esac
}

# rejects OPTION VALUE ARGS...: the message names the option, or the library's argument of that name.
rejects() {
    option=$1
    value=$2
    shift 2
    tried=$((tried + 1))
    "$ORDO" "$@" "$option=$value" >"$out" 2>"$err" </dev/null
    got=$?
    [ "$got" -eq 2 ] || fail "ordo $* $option='$value': exit status $got, expected 2"
    [ -s "$out" ] && fail "ordo $* $option='$value': printed something though it failed"
    case $(<"$err") in # no grep: this runs hundreds of times
    *"given twice"*) fail "ordo $* $option='$value': tests nothing" ;;
    ordo*"${option#--}"*) ;;
    *) fail "ordo $* $option='$value': $option is not named" ;;
    esac
}

# every COMMAND KNOWN ARGS...: each numeric option of its help, but those in KNOWN.
every() {
    command=$1
    known=$2
    shift 2
    tried=0
    # shellcheck disable=SC2086
    "$ORDO" $command --help | sed -nE \
        's/^  (--[a-z-]+) (N|N\[,N\.\.\]|N\[xM\]|X|P|T|S|US|D|M|W|R|BYTES|PERCENT|N\|waves|L,R|QxK|7\|10|0?,?A,B(\.\.|,\.\.\.)|A\.\.B)( .*)?$/\1/p' \
        >"$work/options"
    while read -r name; do
        takes "$known" "$name" && continue
        for value in nan 5y ''; do
            # shellcheck disable=SC2086
            rejects "$name" "$value" $command "$@"
        done
        takes "$negative" "$name" || rejects "$name" -1 $command "$@"
        takes "$huge" "$name" || rejects "$name" 1e30 $command "$@"
        takes "$zero" "$name" || rejects "$name" 0 $command "$@"
    done <"$work/options"
    [ "$tried" -ge 4 ] || fail "ordo $command: $tried values tried; are its options still listed?"
}

problem="$("$ORDO" plan --help | sed -n '/^The problem/,/^$/s/^  \(--[a-z-]*\) .*/\1/p' | tr '\n' ' ')"
every plan "--seq" --seq 32 # the table of problems is the same in run, verify, bench, keep
rejects --seq 0 plan
rejects --seq -1 plan
every verify "$problem" --seq 32
every bench "$problem" attention --seq 32
every gemm "--m --n --k" --m 8 --n 8 --k 32
every keep "$problem" --seq 32 --dropout 0.5 --dump
if lab; then
    every schedule "--tiles" --tiles 4
    rejects --tiles 0 schedule
    every "schedule --ranks 8" "--ranks"
    rejects --ranks 0 schedule
    every block "--seq --embed --heads" --seq 8 --embed 8 --heads 2
    every io "--n --d --cache" --n 32 --d 8 --cache 200 --model lru
    for name in --n --d --cache; do
        rejects $name -1 io
        rejects $name 0 io
        rejects $name 1e30 io
    done
    every "model kernel" "--seq" --kernel attention --seq 1k
    every "model block" "--seq --embed" --seq 1k --embed 1k
    every "model validate" "" "$ORDO_SOURCE/lab/bench/measured/h200.json"
fi

# What would be ignored is refused by name.
for words in "--bits 16" "--rounds 10" "--keying fa2" "--offset 3" "--dropout 0 --bits 16"; do
    name=${words#--dropout 0 }
    # shellcheck disable=SC2086 # a list of words
    for command in plan run verify "bench attention"; do
        refuses 2 "${name% *}: expected only with --dropout above 0" $command --seq 8 $words
    done
done
for command in run verify "bench attention"; do
    # shellcheck disable=SC2086
    for words in "--dropout-mode fused" "--backward-bits keep"; do
        refuses 2 "${words% *}: expected only with --dropout above 0" $command --seq 8 $words
    done
done
refuses 2 "--seq: given twice" run --seq 8 --seq 9
for words in "--mask causal" "--window 3,3" "--scale 2" "--softcap 9" "--alibi" "--block-mask chunk:8" "--seen 1"; do
    # shellcheck disable=SC2086
    refuses 2 "${words% *}: keep bits do not depend on it" keep --seq 16 --dropout 0.5 $words
done
for command in run verify "bench attention"; do
    # shellcheck disable=SC2086
    refuses 2 "--threads: backend ref has one" $command --seq 8 --device ref --threads 2
done
refuses 2 "--delay: only backend cpu" verify --seq 8 --device ref --delay 5
refuses 2 "--json and --line: expected one of them" plan --seq 8 --json --line
if lab; then
    for words in "--bits 16" "--offset 3" "--overlap qkv" "--generator compare"; do
        # shellcheck disable=SC2086
        refuses 2 "${words% *}: expected only with --dropout above 0" block --seq 8 --embed 8 --heads 1 $words
    done
    refuses 2 "--memory and --line: expected one of them" plan --seq 8 --memory --line
    refuses 2 "--memory and --contract: expected one of them" plan --seq 8 --memory --contract
    refuses 2 "--group: expected only with order shift or symmetric" schedule --tiles 8 --order ascending,spt --group 2
    status 0 schedule --tiles 8 --order ascending,shift --group 2
    status 0 schedule --tiles 8 --group 2
    refuses 2 "--section: expected only with --issue key" schedule --tiles 8 --heads 4 --section 2
    refuses 2 "--section: expected only with --issue key" schedule --tiles 8 --heads 4 --section 2 --issue head
    echo '{"kernel": [], "kernels": [{"kind": "rng", "elements": 64}]}' >"$work/kernels.json"
    refuses 2 '"kernels", not "kernel"' model overlap "$work/kernels.json"
fi
finish
