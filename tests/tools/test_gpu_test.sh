# tools/test-gpu counts what its stages say, ends one that hangs with all that it started, resumes,
# keeps its budget, and always ends with one table: with stages made up for this test.
. "$ORDO_SOURCE/tests/common.sh" python3 git
export work
PYTHONDONTWRITEBYTECODE=1 python3 - "$ORDO_SOURCE/tools/test-gpu" <<'END'
import importlib.machinery, importlib.util, os, pathlib, sys, time

loader = importlib.machinery.SourceFileLoader("test_gpu", sys.argv[1])
tool = importlib.util.module_from_spec(importlib.util.spec_from_loader("test_gpu", loader))
sys.modules["test_gpu"] = tool
sys.dont_write_bytecode = True
loader.exec_module(tool)
work = pathlib.Path(os.environ["work"])
tool.LOGS = tool.ROOT = work
runner = tool.Runner(work, 1000)
failed = 0


def expect(script, passed, failures, skipped, note="", limit=600):
    global failed
    got = runner.run(tool.Stage("a/b", ["sh", "-c", script], seconds=1, limit=limit))
    if (got.passed, got.failed, got.skipped) != (passed, failures, skipped) or note not in got.note:
        print(f"FAIL {script!r}: {got}, expected {passed}, {failures}, {skipped}, {note!r}")
        failed = 1


expect("true", 1, 0, 0)
expect("exit 3", 0, 1, 0, "exit 3; see a-b.txt")
expect("echo '5 passed, 0 failed, 0 skipped'", 5, 0, 0)
expect("echo '5 passed, 2 failed, 0 skipped'; exit 1", 5, 2, 0)
expect("echo '5 passed, 0 failed, 0 skipped'; exit 1", 5, 1, 0)  # a crash at the end
expect("echo 'skip: no CUDA device'; echo '0 passed, 0 failed, 1 skipped'; exit 77", 0, 0, 1, "no CUDA")
expect("echo 'skip: PyTorch sees no CUDA device'", 0, 0, 1, "PyTorch sees")
expect(
    "echo 'refused 3 times: call: head_dim # (--only 7)'; echo 'cuda seed 1: 20 of 20 combinations,"
    " 17 passed (2 of them in part), 0 failed, 3 refused; 99 passes, 1.0 s'",
    17, 0, 3, "head_dim",
)
expect("echo 'torch on cuda: 30 ok, 1 refused, 2 FAIL; 9 s'; exit 1", 30, 2, 1)

# A child that outlives its parent ends with it; so does one that hangs.
start = time.monotonic()
expect(f"(sleep 2; touch {work}/late) & exec sleep 60", 0, 1, 0, "killed after 1 s", limit=1)
expect(f"(sleep 2; touch {work}/later) & echo '1 passed, 0 failed, 0 skipped'", 1, 0, 0)
if time.monotonic() - start > 50:
    print("FAIL the limit of a second was not kept")
    failed = 1
time.sleep(2.2)
for name in ("late", "later"):
    if (work / name).exists():
        print(f"FAIL {name}: a child lived on")
        failed = 1
# Stages that may run beside each other do (these wait for each other), and the table has the order of
# the list.
meet = f"touch {work}/$0; while [ $(ls -d {work}/meet-* | wc -l) -lt 4 ]; do sleep 0.1; done"
stages = [
    tool.Stage(f"beside/{n}", ["sh", "-c", meet, f"meet-{n}"], seconds=1, limit=60, beside=True)
    for n in range(4)
]
stages.insert(1, tool.Stage("alone", ["false"], seconds=1))
said = []
got = tool.run_all(stages, runner, 4, False, said.append)
if len(said) != 5:
    print(f"FAIL said {said}")
    failed = 1
if [r.name for r in got] != [t.name for t in stages] or [r.failed for r in got] != [0, 1, 0, 0, 0]:
    print(f"FAIL {got}")
    failed = 1
if runner.run(tool.Stage("a/b", [])).failed != 1:
    print("FAIL a stage that was not built has not failed")
    failed = 1
few = runner.run(tool.Stage("few", ["echo", "5 passed, 0 failed, 0 skipped"], seconds=1, least=6))
if few.failed != 1 or "5 checks, expected 6 or more" not in few.note:
    print(f"FAIL {few}")
    failed = 1
sys.exit(failed)
END
failed=$?

# The whole program, in a copy of its own, so that its state is there.
mkdir -p "$work/copy/tools"
cp "$ORDO_SOURCE/tools/test-gpu" "$work/copy/tools/"
cd "$work/copy" || exit 1
stage() { # name, seconds, script
    printf '{"name": "%s", "command": ["sh", "-c", "echo %s >>%s/ran; %s"], "seconds": %s}' \
        "$1" "$1" "$work" "$3" "$2"
}
run() { # expected status, options...
    local expected=$1 status=0
    shift
    : >"$work/ran"
    python3 tools/test-gpu --stages "$work/stages.json" "$@" >"$work/out" 2>&1 || status=$?
    check "status of $*: $status, expected $expected" [ "$status" -eq "$expected" ]
    check "no table after $*" grep -q '^\(| \)*all  *' "$work/out"
}
check() { # message, command...
    local message=$1
    shift
    "$@" || { echo "FAIL $message"; cat "$work/out"; failed=1; }
}
ran() {
    check "$2: ran $(tr '\n' ' ' <"$work/ran")" [ "$(tr '\n' ' ' <"$work/ran")" = "$1" ]
}

# Longest first; a budget ends the one that runs, leaves out the others, and is kept.
echo "[$(stage short 1 true), $(stage long 3 'sleep 600'), $(stage never 2 true)]" >"$work/stages.json"
run 3 --budget 12
ran 'long ' budget
check budget grep -q '^long   *not run .* not run to its end: the budget of 12 s is spent' "$work/out"
check 'left out' grep -q '^never   *not run .* not run: ' "$work/out"
check sum grep -q '^all .* 3 not run' "$work/out"
# Resumed: what ended is not run again, what failed neither; a change of a source runs all.
echo "[$(stage long 3 true), $(stage bad 2 'echo FAIL of bad; exit 5'), $(stage late 1 'sleep 600')]" >"$work/stages.json"
run 1 --limit 6
ran 'long bad late ' limit
check limit grep -q '^late .* killed after 6 s' "$work/out"
check 'what it said' grep -q '^    FAIL of bad$' "$work/out"
echo "[$(stage long 3 true), $(stage bad 2 true), $(stage late 1 true), $(stage more 1 true)]" >"$work/stages.json"
run 1 --resume
ran 'more ' resumed
check 'earlier' grep -q 'ok gpu/long: .* s, earlier' "$work/out"
echo '# changed' >>tools/test-gpu
run 0 --resume --markdown
ran 'long bad late more ' changed
check markdown grep -q '^| long | ok | 1 | 0 | 0 | ' "$work/out"
check 'table.md' grep -q '^| more | ok ' build/test-gpu/*/table.md
# Ctrl-C: the stage and its children end, the table says so, and the exit status.
echo "[$(stage long 3 "(sleep 2; touch $work/orphan) & exec sleep 60"), $(stage next 1 true)]" >"$work/stages.json"
: >"$work/ran"
python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of sh ignores it
os.execvp("python3", ["python3", *sys.argv[1:]])' tools/test-gpu --stages "$work/stages.json" >"$work/out" 2>&1 &
child=$!
for _ in $(seq 600); do [ -s "$work/ran" ] && break; sleep 0.1; done
kill -INT $child
status=0
wait $child || status=$?
check "status after Ctrl-C: $status" [ $status -eq 3 ]
check interrupted grep -q '^long   *not run .* interrupted' "$work/out"
check 'after it' grep -q '^next   *not run .* interrupted' "$work/out"
sleep 2.2
check 'a child lived on' [ ! -e "$work/orphan" ]
exit $failed
