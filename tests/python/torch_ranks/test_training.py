"""examples/train: equal bits on any number of ranks, after any kill; bad input is refused.

`make soak` kills a hundred runs (tools/train). Here a fork server imports PyTorch once, and every
run is forked from it in a session of its own, so that it can be killed with all its ranks.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import multiprocessing
import os
import pickle
import resource
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

ROOT = Path(__file__).resolve().parents[3]
TRAIN = str(ROOT / "examples" / "train")
OPTIONS = ["--preset", "tiny", "--steps", "6", "--save-every", "2", "--micro-batches", "4",
           "--rows", "1"]  # fmt: skip
PRELOAD = ["torch.distributed.checkpoint", "torch.distributed.fsdp"]

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="PyTorch without gloo")


@pytest.fixture(scope="module", autouse=True)
def server():
    sys.path.insert(0, TRAIN)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._dynamo", *PRELOAD])
    yield context
    sys.path.remove(TRAIN)


def launch(arguments, log, limit=None, patience=None):
    """In a process of the fork server: train.py with these arguments."""
    import checkpoint
    import train

    checkpoint.PATIENCE = checkpoint.PATIENCE if patience is None else patience

    os.setsid()
    with open(log, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if limit is not None:  # limits every file: the same error path as a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    sys.argv = ["train.py", *arguments]
    code = train.main()
    sys.stdout.flush()
    sys.exit(code)


class Training:
    """A run of train.py that goes on in `out`."""

    def __init__(self, server, out, *options, limit=None, patience=None):
        self.log = Path(f"{out}.log")
        self.log.write_text("")
        arguments = [*OPTIONS, "--out", str(out), *options]
        self.process = server.Process(target=launch, args=(arguments, self.log, limit, patience))
        self.process.start()

    def finish(self):
        """(exit status, what it printed)."""
        self.process.join(120)
        assert self.process.exitcode is not None, self.log.read_text()
        return self.process.exitcode, self.log.read_text()

    def digest(self):
        status, text = self.finish()
        assert status == 0, text
        return text.splitlines()[-1].split()[1]

    def refused(self):
        """The line that says why."""
        status, text = self.finish()
        lines = [line for line in text.splitlines() if line.startswith("error: ")]
        assert status != 0 and lines and "Traceback" not in text, text
        return lines[0]

    def kill_when(self, due):
        end = time.monotonic() + 1200
        while not due() and time.monotonic() < end and self.process.is_alive():
            time.sleep(0.0005)
        if self.process.is_alive():
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.join()


def killed(server, out, due, wanted):
    """Train on 2 ranks in `out` and kill them when due(log) is true, until wanted() holds then.

    On a busy machine a kill may come too late, and is tried again.
    """
    for _ in range(5):
        shutil.rmtree(out, ignore_errors=True)
        training = Training(server, out, "--ranks", "2")
        training.kill_when(lambda: due(training.log.read_text()))
        if wanted():
            return out
    raise AssertionError(training.log.read_text())


@pytest.fixture(scope="module")
def whole(server, tmp_path_factory):
    """(digest, folder) of one uninterrupted run on 1 rank."""
    out = tmp_path_factory.mktemp("whole") / "out"
    return Training(server, out).digest(), out


@pytest.fixture
def begun(server, tmp_path):
    """A run on 2 ranks that was killed after its first checkpoint, in a step."""
    out = tmp_path / "out"
    return killed(
        server, out, lambda log: "step    3/6" in log,
        lambda: names_in(out) == {"step-00000002"},
    )  # fmt: skip


def names_in(folder):
    return {x.name for x in folder.iterdir()} - {"lock"}


def files_of(folder):
    return {
        str(x.relative_to(folder)): hashlib.sha256(x.read_bytes()).hexdigest()
        for x in sorted(folder.rglob("*")) if x.is_file()
    }  # fmt: skip


@pytest.mark.parametrize("options", [["2"], ["3"], ["3", "--parallel", "fsdp"]], ids=" ".join)
def test_ranks_do_not_change_bits(server, whole, tmp_path, options):
    """3 ranks do not divide 4 micro-batches; FSDP2 shards what DDP replicates."""
    out = tmp_path / "out"
    assert Training(server, out, "--ranks", *options).digest() == whole[0]
    assert names_in(out) == {"loss.svg", "step-00000004", "step-00000006"}
    assert (out / "loss.svg").read_text() == (whole[1] / "loss.svg").read_text()


def test_another_seed_changes_bits(server, whole, tmp_path):
    assert Training(server, tmp_path / "out", "--seed", "1").digest() != whole[0]


def test_killed_in_a_step(server, whole, begun):
    """Resumed on 3 ranks, under FSDP2."""
    training = Training(server, begun, "--ranks", "3", "--parallel", "fsdp")
    assert training.digest() == whole[0]
    assert "step-00000002 on 3 ranks" in training.log.read_text()


def test_killed_during_a_checkpoint(server, whole, tmp_path):
    """What was written is left behind and ignored; the checkpoint before it is whole."""
    out = tmp_path / "out"
    first = out / "step-00000002"

    def pending(*_):
        return first.exists() and any(out.glob("pending-*"))

    killed(server, out, pending, pending)
    training = Training(server, out, "--ranks", "3")
    assert training.digest() == whole[0] and "resumed" in training.log.read_text()
    assert not pending()


def test_a_rank_that_is_lost_ends_the_others(server, tmp_path):
    training = Training(server, tmp_path / "out", "--ranks", "2")

    def ranks():
        path = Path(f"/proc/{training.process.pid}/task/{training.process.pid}/children")
        return [int(number) for number in path.read_text().split()]

    while "step    1/6" not in training.log.read_text():
        assert training.process.is_alive(), training.log.read_text()
        time.sleep(0.005)
    os.kill(ranks()[1], signal.SIGKILL)
    status, text = training.finish()
    assert status == 1 and "error: ranks ended by a signal" in text


def test_a_checkpoint_of_another_run(server, begun):
    kept = files_of(begun)
    for option, words in (
        (["--dropout", "0.2"], "dropout is 0.1 there and 0.2 here"),
        (["--preset", "small"], "layers is 2 there and 6 here"),
        (["--text", __file__], "text is "),
    ):
        assert words in Training(server, begun, *option).refused()
    assert files_of(begun) == kept
    manifest = begun / "step-00000002" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"AdamW"', '"AdamW, fused"'))
    assert "optimizer is AdamW, fused there and AdamW here" in Training(server, begun).refused()


def test_another_version_is_noted(server, whole, begun):
    manifest = begun / "step-00000002" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(f'"{torch.__version__}"', '"1.0"'))
    training = Training(server, begun, "--ranks", "2")
    assert training.digest() == whole[0]
    assert f"note: torch is 1.0 there and {torch.__version__} here" in training.log.read_text()


def test_damaged_checkpoints(server, begun, tmp_path):
    (name,) = [x.name for x in (begun / "step-00000002").glob("__0*")]

    def truncate(path):
        os.truncate(path / name, 1000)

    def flip(path):
        content = bytearray((path / name).read_bytes())
        content[len(content) // 2] ^= 1
        (path / name).write_bytes(content)

    def remove(path):
        (path / ".metadata").unlink()

    def manifest(path):
        (path / "manifest.json").write_text('{"step": 2')

    for damage, words in (
        (truncate, f"{name} has 1000 bytes, expected"),
        (flip, f"{name} is damaged"),
        (remove, ".metadata has None bytes"),
        (manifest, "manifest.json is damaged"),
    ):
        out = tmp_path / damage.__name__
        shutil.copytree(begun, out)
        damage(out / "step-00000002")
        kept = files_of(out)
        refusal = Training(server, out, "--ranks", "2").refused()
        assert words in refusal and "step-00000002" in refusal
        assert files_of(out) == kept


@pytest.fixture
def ended(whole, tmp_path):
    """A copy of the folder of an uninterrupted run."""
    return shutil.copytree(whole[1], tmp_path / "ended")


def test_a_folder_in_use(server, ended):
    """Two runs that write to one folder could mix their checkpoints."""
    shutil.rmtree(ended / "step-00000006")
    kept = files_of(ended)
    with open(ended / "lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        refusal = Training(server, ended, "--ranks", "2", patience=0.1).refused()
    assert f"--out {ended}: another run is training there" in refusal
    assert files_of(ended) == kept


def test_other_files_of_the_folder_stay(server, whole, ended):
    """A user's copies, notes and folders are no checkpoints: not read, renamed or removed."""
    shutil.rmtree(ended / "step-00000006")
    shutil.copytree(ended / "step-00000004", ended / "step-00000004-best")
    (ended / "pending").mkdir()
    for name in ("step-00000000.txt", "step-notes", "pending/notes"):
        (ended / name).write_text("mine")
    kept = {name: x for name, x in files_of(ended).items() if not name.startswith("step-00000004/")}
    training = Training(server, ended, "--keep", "1")
    assert training.digest() == whole[0]
    assert f"resumed {ended}/step-00000004 on 1 ranks" in training.log.read_text()
    assert not (ended / "step-00000004").exists()
    assert kept.items() <= files_of(ended).items()


def write_manifest(folder, **changes):
    """As one who has the right to write the files can: the digests fit."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text()) | changes
    manifest["files"] = {
        x.name: [x.stat().st_size, hashlib.sha256(x.read_bytes()).hexdigest()]
        for x in folder.iterdir() if x != path
    }  # fmt: skip
    path.write_text(json.dumps(manifest))


def test_tensors_of_another_step(server, ended):
    last = ended / "step-00000006"
    shutil.rmtree(last)
    shutil.copytree(ended / "step-00000004", last)
    write_manifest(last, step=6)
    refusal = Training(server, ended).refused()
    assert f"checkpoint {last}: its tensors are those of step 4" in refusal


class Surprise:
    def __reduce__(self):
        return os.mkdir, ("surprise",)


def test_metadata_that_would_run_code(server, ended):
    last = ended / "step-00000006"
    for content, words in (
        (pickle.dumps(Surprise()), "it names posix.mkdir, which is no part of a checkpoint"),
        (b"ctorch.distributed.checkpoint.filesystem\nos.mkdir\n.", "filesystem.os.mkdir"),
        (b"no pickle", ".metadata: "),
    ):
        (last / ".metadata").write_bytes(content)
        write_manifest(last)
        assert words in Training(server, ended).refused()
    assert not list(ROOT.glob("surprise")) and not Path("surprise").exists()


def test_a_full_disk(server, whole, begun):
    """The last good checkpoint stays, and the run goes on from it when there is room again."""
    kept = files_of(begun / "step-00000002")
    (written,) = (whole[1] / "step-00000006").glob("*.distcp")
    for limit, words in (
        (100_000, "File too large"),  # there is no room for the tensors
        (written.stat().st_size - 1, "rank 0: "),  # it ends while they are written
    ):
        refusal = Training(server, begun, limit=limit).refused()
        assert "step-00000004 could not be written" in refusal and words in refusal
        assert "the last good one is step-00000002" in refusal
        assert names_in(begun) - {"loss.svg"} == {"step-00000002"}
        assert files_of(begun / "step-00000002") == kept
    assert Training(server, begun).digest() == whole[0]


def test_places_that_cannot_be_written(server, whole, tmp_path):
    """Before the first step; and at the last one, when all that matters is in its checkpoint."""
    (tmp_path / "file").touch()
    training = Training(
        server, tmp_path / "log", "--ranks", "2", "--out", str(tmp_path / "file" / "out")
    )
    assert "Not a directory" in training.refused()
    assert "step" not in training.log.read_text()
    out = tmp_path / "out"
    (out / "loss.svg").mkdir(parents=True)
    training = Training(server, out, "--ranks", "3", "--parallel", "fsdp")
    assert "loss.svg" in training.refused()
    (out / "loss.svg").rmdir()
    assert Training(server, out).digest() == whole[0]


def one_rank(rank, folder, options, flip):
    """In a process of the fork server: one of two ranks, with arguments of its own."""
    import train

    with open(folder / f"{rank}.log", "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if flip:
        update = train.Run.update

        def damaged(run):
            result = update(run)
            if run.step == 2:
                run.model.norm.weight.data.view(torch.int32)[3] ^= 1
            return result

        train.Run.update = damaged
    train.rank_main(
        train.read_arguments([*OPTIONS, "--out", str(folder / "out"), *options]), rank, 2,
        f"file://{folder}/ranks",
    )  # fmt: skip


@pytest.mark.parametrize(
    "options, flip, words",
    [
        (["--seed", "1"], False, "ranks disagree: seed is 1 on rank 1, 0 on rank 0"),
        (["--save-every", "3"], False, "ranks disagree: save_every is 3 on rank 1, 2 on rank 0"),
        ([], True, "ranks disagree: the digest of the weights of step 2 is"),
    ],
    ids=["settings", "checkpoints", "weights"],
)
def test_ranks_that_disagree(server, tmp_path, options, flip, words):
    ranks = [
        server.Process(target=one_rank, args=(rank, tmp_path, options * rank, flip and rank == 1))
        for rank in range(2)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(120)
    assert [process.exitcode for process in ranks] == [1, 1]
    assert words in (tmp_path / "0.log").read_text()
    assert not names_in(tmp_path / "out")


def test_order_of_the_data():
    """Known answers: another order would be another run."""
    import data

    assert data.key(0) == 2033344993903900207 and data.key(1, 2, 3) == 7422637611411851198
    text = torch.arange(251, dtype=torch.uint8)
    tokens, targets = data.batch(text, 2, 8, 0, 5, 1)
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    assert tokens[:, 0].tolist() == [46, 195]
    others = [data.batch(text, 2, 8, *numbers)[0] for numbers in ((1, 5, 1), (0, 6, 1), (0, 5, 2))]
    assert not any(torch.equal(tokens, other) for other in others)


@pytest.mark.parametrize(
    "options, words",
    [
        (["--ranks", "5"], "--ranks 5: expected at most 4 micro-batches"),
        (["--ranks", "2", "--device", "cuda"], "--ranks 2: expected 1, or torchrun"),
        (["--steps", "0"], "--steps 0: expected 1 or more"),
        (["--dropout", "1"], "--dropout 1.0: expected 0 or more, below 1"),
        (["--save-every", "-1"], "--save-every -1: expected 0 or more"),
        (["--out", __file__], f"--out {__file__}: expected a folder"),
        (["--text", "/nowhere"], "--text /nowhere: expected a file"),
        (["--text", os.devnull], "--text /dev/null: expected a file"),
    ],
    ids=["ranks", "gpus", "steps", "dropout", "save", "out", "text", "device"],
)
def test_bad_arguments(capsys, options, words):
    import train

    with pytest.raises(SystemExit):
        train.read_arguments([*OPTIONS, *options])
    assert words in capsys.readouterr().err


def test_a_text_that_is_too_short(server, tmp_path):
    text = tmp_path / "text"
    text.write_text("short")
    training = Training(server, tmp_path / "out", "--text", str(text))
    assert "--text of 5 bytes: expected over 64" in training.refused()
