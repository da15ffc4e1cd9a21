"""Checkpoints and the disk: links, long names, full disks, killed processes, files that change while they are read."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import mlc_torch as mlc
from mlc_torch import whole_files
from mlc_torch.interop import TorchOptimizer, checkpoint_file, describe_checkpoint, load_checkpoint, save_checkpoint
from mlc_torch.refusals import MLCRefusal
from tests.interop.programs import (
    Classifier,
    data,
    device,
    empty,
    holding,
    numbers,
    same,
    settings,
    squared_error,
)
from tests.interop.test_checkpoint_refusals import Watched, rewritten

ROOT = Path(__file__).parents[2]


@pytest.fixture
def trained() -> Classifier:
    program = Classifier().compiled()
    program.train(0, 2)
    return program


def loads(path: Path, program: Classifier) -> bool:
    """Whether another graph gets everything from ``path``."""
    fresh = Classifier(seed=4).compiled()
    load_checkpoint(fresh.training, path)
    return same(fresh.state(), program.state())


# Names of files


def test_a_link_stays_a_link_and_its_target_is_written(trained, tmp_path):
    (tmp_path / "there").mkdir()
    target = tmp_path / "there" / "b"
    save_checkpoint(Classifier(seed=9).training, target)
    (tmp_path / "far").symlink_to("there/b")
    (tmp_path / "a").symlink_to("far")
    save_checkpoint(trained.training, tmp_path / "a")
    assert (tmp_path / "a").is_symlink() and (tmp_path / "far").is_symlink() and not target.is_symlink()
    assert loads(target, trained) and loads(tmp_path / "a", trained)
    assert [p.name for p in target.parent.iterdir()] == ["b"]


def test_a_link_to_a_file_that_is_not_there_yet(trained, tmp_path):
    (tmp_path / "a").symlink_to("new")
    save_checkpoint(trained.training, tmp_path / "a")
    assert (tmp_path / "a").is_symlink() and loads(tmp_path / "new", trained)


def test_links_in_a_circle_are_left_alone(trained, tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for call in (save_checkpoint, load_checkpoint):
        with pytest.raises(OSError, match="a"):
            call(trained.training, tmp_path / "a")
    assert (tmp_path / "a").is_symlink() and len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("name", ["n" * 240, "n" * 255, "é" * 127, "a b", "-x", ".hidden", "new\nline", "*?[a]"])
def test_every_name_that_the_disk_takes(trained, tmp_path, name):
    save_checkpoint(trained.training, tmp_path / name)
    assert loads(tmp_path / name, trained)
    assert [p.name for p in tmp_path.iterdir()] == [name]


# Disks


LIMITED = """
    import resource, sys
    from pathlib import Path
    from mlc_torch.interop import save_checkpoint
    from tests.interop.programs import Classifier
    program, path = Classifier(), Path(sys.argv[1])
    save_checkpoint(program.training, path)
    old = path.read_bytes()
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    program.dense1.weights.torch.zero_()
    try:
        save_checkpoint(program.training, path)
    except OSError as error:
        print(type(error).__name__, error.errno, path.read_bytes() == old, [p.name for p in path.parent.iterdir()])
"""


def child(program: str, *arguments: object) -> list[str]:
    return [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program), *map(str, arguments)]


def environment() -> dict[str, str]:
    # Installed or not, the child finds the package and these tests where this process finds them.
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [*filter(None, sys.path), ROOT]))}


def test_a_write_that_the_system_refuses_is_an_os_error(tmp_path):
    """A limit on the size of files stands for the full disk: the system answers the write in the same way."""
    done = subprocess.run(
        child(LIMITED, tmp_path / "a"), env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == ["OSError", str(errno.EFBIG), "True", "['a']"], done.stderr


# Killed processes

SLOW = """
    import os, sys, time
    from mlc_torch.interop import save_checkpoint
    from tests.interop.programs import Classifier
    program = Classifier()
    def wait(_):
        print("writing", flush=True)
        time.sleep(600)
    os.fsync = wait
    save_checkpoint(program.training, sys.argv[1])
"""


def test_what_a_killed_process_left_is_removed_and_a_living_one_s_is_not(trained, tmp_path):
    writers = [
        subprocess.Popen(child(SLOW, tmp_path / name), env=environment(), stdout=subprocess.PIPE, text=True)
        for name in ("a", "b")
    ]
    try:
        assert [writer.stdout.readline().strip() for writer in writers] == ["writing"] * 2
        save_checkpoint(trained.training, tmp_path / "c")
        assert len(list(tmp_path.glob(".*.tmp"))) == 2  # both live
        writers[0].send_signal(signal.SIGKILL)
        writers[0].wait(60)
        assert len(list(tmp_path.glob(".*.tmp"))) == 2
        save_checkpoint(trained.training, tmp_path / "c")
        assert len(list(tmp_path.glob(".*.tmp"))) == 1  # that of the one that lives
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    save_checkpoint(trained.training, tmp_path / "c")
    assert [p.name for p in tmp_path.iterdir()] == ["c"] and loads(tmp_path / "c", trained)


def test_files_of_others_are_not_touched(trained, tmp_path):
    others = [".a.tmp", ".a.0123456789abcdef.tmp", "mlc_torch-1.tmp", ".mlc_torch-1.tmp.txt"]
    for name in others:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".mlc_torch-folder.tmp").mkdir()
    os.mkfifo(tmp_path / ".mlc_torch-pipe.tmp")
    save_checkpoint(trained.training, tmp_path / "a")
    assert {p.name for p in tmp_path.iterdir()} >= {*others, ".mlc_torch-folder.tmp", "a"}


def test_many_savers_of_one_file(tmp_path):
    """Each finds the others' unfinished files, and removes none of them: every save succeeds, and the file is whole."""
    programs = [Classifier(seed=s).compiled() for s in range(4)]
    troubles: list[BaseException] = []

    def save(program: Classifier) -> None:
        try:
            for _ in range(15):
                save_checkpoint(program.training, tmp_path / "a")
        except Exception as error:  # noqa: BLE001 - the main thread looks at it
            troubles.append(error)

    threads = [threading.Thread(target=save, args=(p,)) for p in programs]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if (tmp_path / "a").exists():
            describe_checkpoint(tmp_path / "a")
    assert not troubles and [p.name for p in tmp_path.iterdir()] == ["a"]
    assert any(loads(tmp_path / "a", program) for program in programs)


def test_a_new_file_that_was_taken_for_an_unfinished_one(trained, tmp_path, monkeypatch):
    """Between a file's making and its locking another process may remove it; then there is another try."""
    real, tries = whole_files._locked, []

    def late(file, path):
        tries.append(path)
        if len(tries) < 3:
            whole_files._remove_unfinished(path.parent)
        return real(file, path)

    monkeypatch.setattr(whole_files, "_locked", late)
    save_checkpoint(trained.training, tmp_path / "a")
    assert len(tries) == 3 and loads(tmp_path / "a", trained)
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


# Files that change while they are read

CUT = """
    import os, sys
    from safetensors import torch as library
    from mlc_torch.interop import checkpoint_file, load_checkpoint
    from mlc_torch.refusals import MLCRefusal
    from tests.interop.programs import Classifier
    program, path = Classifier().compiled(), sys.argv[1]
    real = checkpoint_file._digest
    def digest(tensors, text):
        os.truncate(path, 0)
        return real(tensors, text)
    checkpoint_file._digest = digest
    try:
        load_checkpoint(program.training, path)
        print("loaded")
    except MLCRefusal:
        print("refused")
"""


def test_a_file_that_is_cut_off_while_it_is_loaded(trained, tmp_path):
    """What is mapped into memory would kill the process here."""
    save_checkpoint(trained.training, tmp_path / "a")
    done = subprocess.run(child(CUT, tmp_path / "a"), env=environment(), capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "loaded"), done.stderr


def test_a_file_that_is_overwritten_after_it_was_checked(trained, tmp_path, monkeypatch):
    """What was checked is what is used."""
    path, real = tmp_path / "a", checkpoint_file._digest
    save_checkpoint(trained.training, path)

    def digest(tensors, text):
        found = real(tensors, text)
        with path.open("r+b") as file:
            file.seek(-2000, os.SEEK_END)
            file.write(b"\xff" * 2000)
        return found

    monkeypatch.setattr(checkpoint_file, "_digest", digest)
    assert loads(path, trained)
    monkeypatch.undo()
    assert "damaged" in Watched().refuses(path)


def test_a_file_that_is_overwritten_and_cut_all_the_time(tmp_path):
    """Each load gives one of the two checkpoints whole, or is refused and changes nothing."""
    whole = []
    for seed in (1, 2):
        save_checkpoint(Classifier(seed=seed).training, tmp_path / "whole")
        whole.append((tmp_path / "whole").read_bytes())
    assert len(whole[0]) == len(whole[1])
    path, stop = tmp_path / "a", threading.Event()
    path.write_bytes(whole[0])

    def disturb() -> None:
        random = np.random.default_rng(0)
        while not stop.is_set():
            with path.open("r+b") as file:
                contents = whole[random.integers(2)]
                for start in range(0, len(contents), 4096):
                    file.seek(start)
                    file.write(contents[start : start + 4096])
                    file.flush()
                if random.integers(3) == 0:
                    file.truncate(int(random.integers(len(contents))))

    states = [Classifier(seed=seed).state() for seed in (1, 2)]
    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        target, end, refused = Classifier(seed=3), time.monotonic() + 1.5, 0
        while time.monotonic() < end:
            before = target.state()
            try:
                load_checkpoint(target.training, path)
            except MLCRefusal:
                refused += 1
                assert same(target.state(), before)
            else:
                assert any(same(target.state(), state) for state in states)
    finally:
        stop.set()
        thread.join()
    assert refused


def test_a_large_file_of_another_kind_is_not_read(tmp_path):
    with (tmp_path / "a").open("wb") as file:
        file.truncate(2**42)  # a hole on the disk: reading it would take all memory there is
    assert "no checkpoint that can be loaded" in Watched().refuses(tmp_path / "a")


# What is in them


def twice_labelled(*labels: str, start: float = 0.0) -> tuple[mlc.MLCTrainingGraph, list[mlc.MLCTensor]]:
    """A program that trains tensors of its own, with these labels, in this order."""
    x, y, graph = empty(2, 3), empty(2, 3), mlc.MLCGraph()
    made = graph.node(mlc.MLCActivationLayer.relu, source=x)
    tensors = [holding(numbers(1, 3, seed=n) + np.float32(start)) for n in range(len(labels))]
    for tensor, label in zip(tensors, labels, strict=True):
        tensor.label = label
        made = graph.node(mlc.MLCArithmeticLayer(operation=mlc.MLCArithmeticOperation.add), sources=[made, tensor])
    rule = mlc.MLCSGDOptimizer(descriptor=settings(), momentumScale=0.9, usesNesterovMomentum=False)
    training = mlc.MLCTrainingGraph(graphObjects=[graph], lossLayer=squared_error(), optimizer=rule)
    training.addInputs({"x": x}, lossLabels={"y": y})
    training.setTrainingTensorParameters([mlc.MLCTensorParameter(tensor=t) for t in tensors])
    assert training.compile(options=[], device=device())
    given = {"x": data(numbers(2, 3))}, {"y": data(numbers(2, 3, seed=1))}
    assert training.execute(inputsData=given[0], lossLabelsData=given[1], lossLabelWeightsData=None, batchSize=2)
    return training, tensors


def test_tensors_with_one_label_are_all_saved(tmp_path):
    labels = ["a", "a", "a_1", "a", "0"]
    source, tensors = twice_labelled(*labels)
    save_checkpoint(source, tmp_path / "a")
    names = [n for n in load_file(tmp_path / "a") if n.startswith("trained/")]
    assert sorted(names) == ["trained/0", "trained/a", "trained/a_1", "trained/a_1_1", "trained/a_2"]
    target, others = twice_labelled(*labels, start=5.0)
    load_checkpoint(target, tmp_path / "a")
    assert all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip(tensors, others, strict=True))


@pytest.mark.parametrize(
    "label", ["\ud800", "a\udfffb", "", "new\nline", "\0", "🧪", "\u202eright", "/", "..", "a" * 10_000]
)
def test_awkward_labels_of_trained_tensors(label, tmp_path):
    source, tensors = twice_labelled(label, label.encode(errors="backslashreplace").decode())
    save_checkpoint(source, tmp_path / "a")
    target, others = twice_labelled(label, label.encode(errors="backslashreplace").decode(), start=5.0)
    load_checkpoint(target, tmp_path / "a")
    assert all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip(tensors, others, strict=True))
    assert describe_checkpoint(tmp_path / "a")["graph"]["nodes"]


MEMBERS = {
    "save_checkpoint": save_checkpoint,
    "load_checkpoint": load_checkpoint,
    "describe_checkpoint": lambda graph, path: describe_checkpoint(path),
}


@pytest.mark.parametrize("path", [5, None, b"a.safetensors", ["a"]])
@pytest.mark.parametrize("member", MEMBERS)
def test_a_path_is_text_or_path_like(trained, member, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match=rf"{member}: argument 'path' expects a path \(str or os.PathLike\), got"):
        MEMBERS[member](trained.training, path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["a\0b", "a\ud800b"])
@pytest.mark.parametrize("member", MEMBERS)
def test_what_no_file_can_be_called_is_refused(trained, member, path):
    with pytest.raises(MLCRefusal, match=f"{member}: argument 'path' is .*, and no file can be called so"):
        MEMBERS[member](trained.training, path)


def test_a_folder_that_is_not_there_is_told_by_the_path_that_was_given(trained, tmp_path):
    path = tmp_path / "none" / "a.safetensors"
    with pytest.raises(FileNotFoundError) as found:
        save_checkpoint(trained.training, path)
    assert found.value.filename == str(path) and str(found.value).endswith(f"{str(path)!r}")


@pytest.mark.parametrize("resume", ["no", 0, 1, None, []])
def test_resume_is_yes_or_no(trained, tmp_path, resume):
    save_checkpoint(trained.training, tmp_path / "a")
    watched = Watched()
    with pytest.raises(TypeError, match="'resume' expects a bool, got"):
        load_checkpoint(watched.program.training, tmp_path / "a", resume=resume)
    assert watched.everything() == watched.before


@pytest.mark.parametrize("resume", [True, False])
def test_resume_may_be_numpys_bool(trained, tmp_path, resume):
    save_checkpoint(trained.training, tmp_path / "a")
    target = Classifier("Adam", seed=30).compiled()
    fresh = target.rule.timeStep
    assert fresh != trained.rule.timeStep
    load_checkpoint(target.training, tmp_path / "a", resume=np.bool_(resume))
    np.testing.assert_array_equal(target.dense1.weights.numpy(), trained.dense1.weights.numpy())
    assert target.rule.timeStep == (trained.rule.timeStep if resume else fresh)


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), float("-inf")])
def test_learning_rates_that_are_no_numbers(trained, tmp_path, rate):
    save_checkpoint(trained.training, tmp_path / "a")
    path = rewritten(tmp_path / "a", lambda tensors, about: about["optimizer"].update(learningRate=rate))
    assert f"learning rate {rate}" in Watched().refuses(path)
    fresh = Classifier(seed=3)
    load_checkpoint(fresh.training, path, resume=False)
    assert same(fresh.state(), trained.state())


def grouped(rates: tuple[float, float]) -> Classifier:
    """A torch optimizer with a learning rate for each of two groups."""
    program = Classifier()
    first, *others = program.graph.to_module().parameters()
    groups = [{"params": [first], "lr": rates[0]}, {"params": others, "lr": rates[1]}]
    program.rule = TorchOptimizer(torch.optim.SGD(groups, momentum=0.9))
    program.training = mlc.MLCTrainingGraph(
        graphObjects=[program.graph], lossLayer=squared_error(), optimizer=program.rule
    )
    program.training.addInputs({"image": program.image}, lossLabels={"target": program.target})
    return program.compiled()


def test_each_group_of_a_torch_optimizer_has_its_rate(tmp_path):
    source = grouped((0.1, 0.02))
    source.train(0, 1)
    save_checkpoint(source.training, tmp_path / "a")
    target = grouped((0.5, 0.5))
    load_checkpoint(target.training, tmp_path / "a")
    assert [g["lr"] for g in target.rule.optimizer.param_groups] == [0.1, 0.02]

    def spoilt(tensors, about):
        about["optimizer"]["torch"]["rates"] = [0.1, float("nan")]

    with pytest.raises(MLCRefusal, match="learning rates"):
        load_checkpoint(target.training, rewritten(tmp_path / "a", spoilt))
