# Writes that fail, and commands that are interrupted: the reason is said, and nothing is left.
. "$ORDO_SOURCE/tests/cli/common.sh"
cd "$work" || exit 1

# nothing_in FOLDER: neither the file nor its temporary name is there.
nothing_in() {
    [ -z "$(ls -A "$1")" ] || fail "left in $1: $(ls -A "$1")"
    rm -rf "$1"
}

# The command, which must end within 20 seconds of processor time.
soon() {
    (
        ulimit -t 20
        exec "$ORDO" "$@"
    )
}

# A device that is full; the output is larger than any buffer, so that an early write fails.
if [ -w /dev/full ]; then
    refuses 4 "cannot write /dev/full: No space left" keep --seq 1k --dropout 0.1 --export /dev/full
    lab && refuses 4 "cannot write /dev/full: No space left" schedule --tiles 64 --heads 8 --svg /dev/full
    "$ORDO" keep --seq 1k --dropout 0.1 --dump 2>"$err" >/dev/full
    [ $? -eq 4 ] || fail "--dump to a full device: expected exit status 4"
    grep -q "standard output: No space left" "$err" || fail "--dump to a full device: no reason given"
    # It stops there: 10^12 elements would take hours.
    soon keep --seq 1000m --kv-seq 1k --dropout 0.1 --export /dev/full --force 2>"$err" >"$out"
    [ $? -eq 4 ] || fail "--export --force to a full device: expected exit status 4"
fi

# A limit on the size of files: each output is removed, whichever write failed.
limited() { # folder or file in it, args...
    mkdir small
    (
        ulimit -f 8
        exec "$ORDO" "$@" >"$out" 2>"$err"
    )
    [ $? -eq 4 ] || fail "ordo $*: expected exit status 4 at a limit on file sizes"
    grep -q "cannot write small/.*: File too large" "$err" || fail "ordo $*: no reason given"
    nothing_in small
}
limited keep --seq 1k --dropout 0.1 --export small/mask
limited keep --seq 1k --dropout 0.1 --picture small/mask.png
limited run --seq 256 --device cpu --out-dir small
lab && limited schedule --tiles 64 --heads 8 --svg small/a.svg --json=small/a.json

# A disk that is full, where one can be mounted: the last of several files does not fit.
mkdir disk
if mount -t tmpfs -o size=64k tmpfs disk 2>/dev/null; then
    refuses 4 "cannot write disk/dv.npy: No space left" run --seq 64 --device cpu --out-dir disk
    [ "$(ls disk | tr '\n' ' ')" = "dk.npy dq.npy lse.npy o.npy " ] || fail "left: $(ls disk)"
    umount disk
fi

# A path that cannot be written is refused before the work, which would take minutes.
early() { # text, args...
    soon "${@:2}" >"$out" 2>"$err"
    [ $? -eq 4 ] || fail "ordo ${*:2}: expected exit status 4 at once"
    [ -s "$out" ] && fail "ordo ${*:2}: printed something though it failed"
    grep -qF "$1" "$err" || fail "ordo ${*:2}: expected to read: $1"
}
long="--seq 3k --heads 8 --threads 1"
# shellcheck disable=SC2086
{
    early "cannot write no/file: No such file" verify $long --repeats 1000 --write no/file
    early "cannot write no/file: No such file" verify $long --repeats 1000 --json=no/file
    early "cannot write .: Is a directory" bench attention $long --seconds 1000 --json=.
    early "cannot make no/folder: No such file" run --seq 8k --heads 64 --threads 1 --force --out-dir no/folder
}
if lab; then
    early "cannot write no/a: No such file" block --seq 16 --embed 16 --heads 2 --time 1000 --json=no/a
    early "cannot write no/a: No such file" io --n 16k --d 64 --cache 700 --model lru --json=no/a
    early "cannot write no/a: No such file" model grid --figure 5 --svg no/a
    for option in svg html trace; do
        early "cannot write no/a: No such file" schedule --tiles 512 --heads 64 --order all --$option no/a
    done
fi
# A pipe is not opened for that: its reader gets one stream. What exists stays as it is.
mkfifo pipe
cat pipe >read.txt &
status 0 plan --seq 4 --json=pipe
wait $!
"$work/json_check" <read.txt 2>"$err" || fail "--json=pipe: the reader got no JSON"
mkdir kept
echo old >kept/file
refuses 2 "--seq: missing" run --save kept/file --json=kept/new
[ "$(ls -A kept) $(cat kept/file)" = "file old" ] || fail "a refused command left $(ls -A kept)"
status 0 run --seq 4 --out-dir kept
refuses 3 "floating-point operations" run --seq 64k --heads 64 --out-dir folder
[ -e folder ] && fail "a refused run left its folder"
# A link stays, and its file is replaced; a file that is only read stays, too. Root may write it.
ln -s file kept/link
status 0 plan --seq 4 --json=kept/link
[ -L kept/link ] && "$work/json_check" schema_version <kept/file >"$out" 2>"$err" || fail "a link was replaced"
chmod 400 kept/file
[ -w kept/file ] || refuses 4 "cannot write kept/file: Permission denied" plan --seq 4 --json=kept/file

# A file that no disk holds is refused before it is begun; a part of it, or a stream, is not.
refuses 3 "mask.bin: 1.1e+18 elements, expected at most 2^38" \
    keep --seq 1000m --dropout 0.1 --export "$work/mask.bin"
refuses 3 "1.41e+15 elements" keep --cu-seqlens 0,16m,48m --dropout 0.1 --export mask.bin --heads 1
[ -e mask.bin ] && fail "a refused export left a file"
status 0 keep --seq 1000m --heads 4 --dropout 0.1 --export mask.bin --rows 7..9 --cols 5..8
[ "$(wc -c <mask.bin)" -eq 24 ] || fail "--export of a part: wrong size"

# A reader that leaves ends the writer, early and without a word.
quiet=$("$ORDO" keep --seq 1000m --kv-seq 1k --dropout 0.1 --dump 2>"$err" | head -c 100 | wc -c)
[ "$quiet" -eq 100 ] || fail "--dump into head: $quiet bytes"
[ -s "$err" ] && fail "--dump into head: wrote to stderr"
quiet=$("$ORDO" keep --seq 1000m --kv-seq 1k --dropout 0.1 --export - 2>"$err" | head -c 100 | wc -c)
[ "$quiet" -eq 100 ] || fail "--export - into head: $quiet bytes"
[ -s "$err" ] && fail "--export - into head: wrote to stderr"

# Ctrl-C: exit status 130, and no partial file.
for number in "INT 130" "TERM 143"; do
    mkdir interrupted
    env --default-signal="${number% *}" \
        "$ORDO" keep --seq 1000m --kv-seq 1k --dropout 0.1 --force --export interrupted/mask --format bits >"$out" 2>"$err" &
    pid=$!
    while [ -z "$(ls -A interrupted)" ] && kill -0 $pid; do
        sleep 0.05
    done
    kill -s "${number% *}" $pid
    wait $pid
    got=$?
    [ "$got" -eq "${number#* }" ] || fail "SIG$number: exit status $got"
    nothing_in interrupted
done
finish
