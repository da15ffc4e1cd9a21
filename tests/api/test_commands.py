"""``python -m mlc_torch``: the doctor and the checks behind it."""

from __future__ import annotations

import platform

import pytest
import torch

import mlc_torch
from mlc_torch.__main__ import main
from mlc_torch.commands import checks, demo, doctor, training_check
from mlc_torch.coverage.api import api
from mlc_torch.coverage.compare import entries


def test_the_table_has_a_case_for_every_layer():
    listed = {name for name in api()["classes"] if name.endswith("Layer")} - {"MLCLayer"}
    assert set(checks.layers()) == listed, "a layer class is called MLC… only if it is Apple's"
    assert set(checks.CASES) == listed, "every layer has a case in mlc_torch/commands/checks.py"


@pytest.mark.parametrize("name", checks.CASES)
def test_every_check_passes(name, torch_device):
    assert checks.check(name, torch_device) is None


def test_training_passes(torch_device):
    cpu = torch_device.type == "cpu"
    device = mlc_torch.MLCDevice() if cpu else mlc_torch.MLCDevice(gpuDevices=[torch_device])
    assert training_check.check_training(device) is None


def test_the_doctor_names_versions_and_devices(capsys, monkeypatch):
    monkeypatch.setenv("MLC_TORCH_STRICT", "0")
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    for words in (
        f"torch {torch.__version__}",
        mlc_torch.__version__,
        "cpu: ",
        "data types: float32, float16",
        "STRICT=0",
    ):
        assert words in text


def test_the_doctor_tells_of_a_library_that_gives_memory_back(capsys, monkeypatch, tmp_path):
    """By torch's own file, here another one."""
    (tmp_path / "lib").mkdir()
    core = tmp_path / "lib" / "libc10.so"
    monkeypatch.setattr(doctor.torch, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.delenv("MIMALLOC_PURGE_DELAY", raising=False)
    told = []
    for content, setting in ((None, None), (b"malloc", None), (b"..mimalloc: ..", None), (b"mimalloc", "-1")):
        if content is not None:
            core.write_bytes(content)
        if setting is not None:
            monkeypatch.setenv("MIMALLOC_PURGE_DELAY", setting)
        assert main(["doctor"]) == 0
        told.append("MIMALLOC_PURGE_DELAY=1000" in capsys.readouterr().out)
    assert told == [False, False, True, False]


@pytest.mark.parametrize(
    ("cudnn", "products", "words"),
    [
        (True, False, ["convolutions and LSTMs round their factors to TF32", "products in full", "allow_tf32 = False"]),
        (True, True, ["convolutions and LSTMs and products round their factors"]),
        (False, False, ["float32: computed in full (TF32 is off)"]),
    ],
)
def test_the_doctor_says_what_tf32_does(cudnn, products, words):
    """The line that it prints for a CUDA device; the switches are torch's, and are there without one."""
    switches = torch.backends.cudnn, torch.backends.cuda.matmul
    before = [switch.allow_tf32 for switch in switches]
    try:
        switches[0].allow_tf32, switches[1].allow_tf32 = cudnn, products
        line = doctor.tf32()
    finally:
        switches[0].allow_tf32, switches[1].allow_tf32 = before
    assert all(w in line for w in words)


def test_the_doctor_tells_of_a_device_that_is_none(capsys, monkeypatch):
    monkeypatch.setenv("MLC_TORCH_DEVICE", "quantum")
    assert main(["doctor"]) == 1
    assert capsys.readouterr().out.endswith(
        "MLC_TORCH_DEVICE='quantum' names no device; use cpu, cuda, cuda:0 or mps\n"
    )


def test_the_doctor_says_plainly_what_failed(capsys, monkeypatch):
    def broken():
        raise RuntimeError("no such kernel\nand much more")

    def differing():
        made = mlc_torch.MLCActivationLayer.relu
        made.module.register_forward_hook(lambda module, sources, result: result + next(numbers))
        return made

    numbers = iter(range(100))
    monkeypatch.setitem(checks.CASES, "MLCReshapeLayer", checks.Case(broken, []))
    monkeypatch.setitem(checks.CASES, "MLCActivationLayer", checks.Case(differing, [((2,), "float32")]))
    monkeypatch.delitem(checks.CASES, "MLCSplitLayer")
    monkeypatch.setattr(doctor, "check_training", lambda device: "the loss does not fall")
    assert main(["doctor", "--check"]) == 1
    text = capsys.readouterr().out
    assert "FAILED MLCReshapeLayer: RuntimeError: no such kernel\n" in text
    assert "FAILED MLCActivationLayer: result 0 differs from the CPU's by up to 1" in text
    assert "FAILED MLCSplitLayer: the table of checks has no case for it" in text
    assert "FAILED three steps of training: the loss does not fall" in text


def test_the_doctor_tells_which_types_do_not_move(capsys, monkeypatch):
    def moves(kind, device):
        return "TypeError: no float64" if kind.name == "int64" else None

    monkeypatch.setattr(doctor, "_moves", moves)
    assert main(["doctor"]) == 0
    assert "not int64: TypeError: no float64" in capsys.readouterr().out


def test_the_version_is_shown(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    python = platform.python_version()
    out = capsys.readouterr().out
    assert out == f"mlc_torch {mlc_torch.__version__}, torch {torch.__version__}, Python {python}\n"


def test_coverage_lists_the_members_of_a_class(capsys):
    assert main(["coverage", "MLCReshapeLayer"]) == 0
    text = capsys.readouterr().out
    for line in (
        "Swift        init(shape:)",
        "Objective-C  + layerWithShape:",
        "Swift        shape",
        "Objective-C  - shape",
    ):
        assert f"      {line}\n" in text
    assert "MLCTensor " not in text


def test_coverage_lists_every_member_on_request(capsys):
    assert main(["coverage", "--members"]) == 0
    text = capsys.readouterr().out
    assert sum(line.startswith(("      Swift  ", "      Objective-C  ")) for line in text.splitlines()) == len(
        entries()
    )


def test_coverage_of_an_unknown_class_is_an_error(capsys):
    assert main(["coverage", "MLCNothing"]) == 2
    assert capsys.readouterr().err == "ML Compute has no MLCNothing\n"


@pytest.mark.parametrize("name", ["checks", "programs", "nothing"])
def test_what_is_no_command_is_told_with_those_that_are(name, capsys):
    """Also the name of a module that lies beside them."""
    with pytest.raises(SystemExit) as stop:
        main([name])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert f"invalid choice: '{name}'" in error
    assert all(there in error.partition("choose from")[2] for there in ("coverage", "demo", "doctor", "swift"))


@pytest.mark.parametrize("epochs", ["x", "0", "-1", "1.5", ""])
def test_epochs_are_a_whole_number_above_0(epochs, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["demo", f"--epochs={epochs}"])
    assert stop.value.code == 2
    assert f"argument --epochs: a whole number above 0 is expected, got {epochs!r}" in capsys.readouterr().err


@pytest.mark.parametrize("out", ["file/folder", "file"])
def test_a_folder_that_cannot_be_written_is_told_before_the_training(out, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(demo.Digits, "load", lambda: pytest.fail("the training has begun"))
    with pytest.raises(SystemExit, match=rf"--out .*{out}: nothing can be written there \(\w+"):
        main(["demo", "--out", str(tmp_path / out)])


def test_a_command_is_needed(capsys):
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 2
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(name in text for name in ("coverage", "doctor", "demo"))
