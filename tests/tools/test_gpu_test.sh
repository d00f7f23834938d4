# tools/test-gpu counts what its tests say, and ends one that hangs with all that it started.
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
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
failed = 0


def expect(script, passed, failures, skipped, note="", limit=600):
    global failed
    got = tool.run(tool.Test("a/b", ["sh", "-c", script]), limit)
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
expect(
    "echo 'refused by name: scale 2, window 1'; echo 'signatures on cuda: 50 draws, 4 FAIL; 9 s'; exit 1",
    43, 4, 3,
)
expect("echo 'refused by name: '; echo 'signatures on cuda: 50 draws, 0 FAIL; 9 s'", 50, 0, 0)

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
# Tests that may run beside each other do (these wait for each other), and the table has the order of
# the list.
names = [f"beside/{n}" for n in range(4)]
meet = f"touch {work}/$0; while [ $(ls -d {work}/beside-* | wc -l) -lt 4 ]; do sleep 0.1; done"
tests = [tool.Test(n, ["sh", "-c", meet, n.replace("/", "-")], beside=True, limit=60) for n in names]
tests.insert(1, tool.Test("alone", ["false"]))
start, said = time.monotonic(), []
args = tool.argparse.Namespace(minutes=30, limit=None, jobs=4)
got = tool.run_all(tests, args, start, said.append)
if len(said) != 5:
    print(f"FAIL said {said}")
    failed = 1
if [r.name for r in got] != [t.name for t in tests] or [r.failed for r in got] != [0, 1, 0, 0, 0]:
    print(f"FAIL {got}")
    failed = 1
if tool.run(tool.Test("a/b", []), 5).failed != 1:
    print("FAIL a test that was not built has not failed")
    failed = 1
sys.exit(failed)
END
