# The registry of numeric keys, tests/data/digests/keys.txt: this library gives every key that it
# lists as current, with the digests stated there, and the defaults give no key that it does not
# list. Lines of cuda run on a device, if there is one; and on the emulator, which gives the same
# digests: here two of them, all with --emulator (bits_long.sh).
#
#   tests/cli/attention/bits_test.sh --write      fills in digests that are not known, where they run
#   tests/cli/attention/bits_test.sh --emulator   runs the lines of cuda on the emulator, no others
. "$ORDO_SOURCE/tests/cli/common.sh"
registry=$ORDO_SOURCE/tests/data/digests/keys.txt
version=$("$ORDO" --version | sed -n "1s/^ordo \([0-9.]*\).*/\1/p")

not_after() { # two versions
    [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}
device=$("$ORDO" info | grep -q '^  cuda *yes' && echo yes)
computed() { # arguments of ordo run: all digests on one line, "-" if they cannot be had here
    case "$*" in
    *"--device cuda"*) [ -n "$device" ] || { echo - && return; } ;;
    esac
    # shellcheck disable=SC2048,SC2086 # a list of words
    "$ORDO" run $* --json 2>"$err" | sed -nE 's/^ *"(o|lse|dq|dk|dv)": "([0-9a-f]*)".*/\2/p' | paste -sd' '
}
key() { # arguments of ordo run, or of ordo plan without --seed
    # shellcheck disable=SC2048,SC2086 # a list of words
    "$ORDO" plan $(echo "$*" | sed 's/ --seed [0-9]*//; s/--device cuda/& --machine h200/') --json \
        2>"$err" | sed -nE 's/^ *"numeric_key": "(.*)",?$/\1/p'
}

# Lines of cuda on the emulator: the same key, and the same digests.
emulated=0
emulate() { # arguments of ordo run; digests
    local here=${1/--device cuda/--device emulator} got
    [ "$(key "$here")" = "$(key "$1")" ] || fail "$here: key $(key "$here"), expected $(key "$1")"
    got=$(computed "$here")
    emulated=$((emulated + 1))
    [ "$got" = "$2" ] || fail "$here:" $'\n'"    got      $got"$'\n'"    expected $2"
}
sanitized=$("$ORDO" info | grep -qE '\+(asan|tsan|ubsan)' && echo yes) # ten times slower
emulates() { # arguments of ordo run: whether this run does so
    [ -z "$sanitized" ] || return 1
    case "${mode-} $1" in
    "--emulator "*"--device cuda"*) true ;;
    *"--device cuda"*"--dim 64 --seed 42 --mask causal ") true ;;
    *"--device cuda"*"--dim 128 --seed 42 --mask causal --dropout 0.1 ") true ;;
    *) false ;;
    esac
}

mode=${1-} rows=0 ran=0
while IFS='|' read -r key first last arguments known; do
    read -r key first last known <<<"$key $first $last $known"
    rows=$((rows + 1))
    not_after "$first" "$version" || fail "$key: first version $first is after $version"
    if [ "$last" != - ]; then
        not_after "$first" "$last" || fail "$key: last version $last is before the first, $first"
        not_after "$version" "$last" && fail "$key: last version $last is not before $version"
        continue
    fi
    emulates "$arguments" && emulate "$arguments" "$known"
    [ "$mode" != --emulator ] || continue
    [ "$(key "$arguments")" = "$key" ] || fail "$arguments: key $(key "$arguments"), expected $key"
    got=$(computed "$arguments")
    if [ "$known" = - ] && [ "${#got}" -eq 84 ]; then
        echo "new  $key |$arguments| $got"
        [ "${1-}" != --write ] || sed -i "s#^\\(.*|$arguments|\\) -\$#\\1 $got#" "$registry"
    elif [ "$got" != - ]; then
        ran=$((ran + 1))
        [ "$got" = "$known" ] || fail "$arguments:" $'\n'"    got      $got"$'\n'"    expected $known"
    fi
done < <(grep -v '^#' "$registry")
[ "${1-}" != --write ] || exit 0
if [ "$mode" = --emulator ]; then
    [ "$emulated" -ge 25 ] || fail "$registry: $emulated lines ran on the emulator, expected 25"
    finish
fi
[ "$emulated" -eq 2 ] || [ -n "$sanitized" ] || fail "$registry: $emulated lines ran on the emulator, expected 2"
[ "$ran" -ge 20 ] || fail "$registry: $ran of $rows lines ran, expected at least those of cpu and ref"

# Whatever the defaults choose is in the registry.
for choice in "" "--dropout 0.1" "--dropout 0.1 --rounds 10" "--dropout 0.1 --keying fa2"; do
    for mask in full causal causal-top-left "full --window 99,0"; do
        for dim in 1 576; do
            found=$(key "--device cpu --seq 500 --dim $dim --mask $mask $choice")
            grep -qF "$found |" "$registry" || fail "cpu, $mask, $choice: $found is not listed"
        done
    done
done
for dim in 8 64 72 128 136 192 200 256 264 576; do
    for choice in "" "--mask causal" "--window 99,9" "--dropout 0.1" "--mask causal --dropout 0.1"; do
        found=$(key "--device cuda --dtype bf16 --seq 500 --dim $dim $choice")
        grep -qF "$found |" "$registry" || fail "cuda, head size $dim, $choice: $found is not listed"
    done
done
finish
