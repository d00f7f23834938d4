# tools/mutate: its copy of the tree follows the checkout, a restored file stays newer than what was
# built from its mutant, and a test that hangs is ended.
. "$ORDO_SOURCE/tests/common.sh" python3
export work
PYTHONDONTWRITEBYTECODE=1 python3 - "$ORDO_SOURCE/tools/mutate" <<'END'
import importlib.machinery, importlib.util, os, pathlib, sys, time

loader = importlib.machinery.SourceFileLoader("mutate", sys.argv[1])
tool = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutate", loader))
loader.exec_module(tool)
work = pathlib.Path(os.environ["work"])
tool.ROOT, tool.TREE = work / "root", work / "root" / "build" / "mutate" / "tree"
failed = 0


def expect(fine, what):
    global failed
    if not fine:
        print(f"FAIL {what}")
        failed = 1


def write(path, text, time):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (time, time))


write(tool.ROOT / "src" / "a.c", "one", 1000)
write(tool.ROOT / "src" / "b.c", "two", 1000)
write(tool.ROOT / "build" / "lib", "built", 1000)
tool.copy_tree()
copy = tool.TREE / "src" / "a.c"
expect(copy.read_text() == "one", "a file is not copied")
expect(not (tool.TREE / "build").exists(), "a build is copied")

write(tool.TREE / "build" / "a.o", "built from a mutant", 2000)
write(copy, "one", 3000)  # restored
write(tool.ROOT / "src" / "c.c", "three", 1000)
(tool.ROOT / "src" / "b.c").unlink()
tool.copy_tree()
expect(copy.stat().st_mtime == 3000, "a restored file is older than what was built before it")
expect((tool.TREE / "build" / "a.o").exists(), "the build is not kept")
expect((tool.TREE / "src" / "c.c").read_text() == "three", "a new file is missing")
expect(not (tool.TREE / "src" / "b.c").exists(), "a removed file is still there")

write(tool.ROOT / "src" / "a.c", "changed", 1500)
tool.copy_tree()
expect(copy.read_text() == "changed" and copy.stat().st_mtime > 3000, "a change is not built")

# A script is built with the programs of other tests that it runs.
write(tool.ROOT / "tests" / "a" / "b_test.sh", "grid=$ORDO_BUILD/tests/c/d_test", 1000)
expect(tool.targets_of("a/b") == {"product", "tests/c/d_test"}, "a program of a script is not built")

# A test that hangs has failed, and what it started ends with it; one that is skipped is an error.
(tool.TREE / "build").mkdir(exist_ok=True)
for script, said in (("exit 0", ""), ("exit 3", "a"), ("kill -ABRT $$", "a"),
                     ("sleep 60", "a, which hangs"),
                     (f"(sleep 2; touch {work}/late) & sleep 60", "a, which hangs")):
    tool.test_of = lambda name, folder: (["sh", "-c", script], {})
    found = tool.failure("a", "build", 1 if "sleep" in script else 600)
    expect(found == said, f"{script}: {found}, not {said}")
time.sleep(2.2)
expect(not (work / "late").exists(), "a child lived on")
tool.test_of = lambda name, folder: (["sh", "-c", "exit 77"], {})
try:
    tool.failure("a", "build", 600)
    expect(False, "a skipped test has passed")
except SystemExit:
    pass
sys.exit(failed)
END
