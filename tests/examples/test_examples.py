"""Every program in ``examples/`` runs, learns what it says and draws its picture."""

from __future__ import annotations

import importlib.util
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mlc_torch import MLCTrainingWarning
from mlc_torch.__main__ import main as command
from mlc_torch.commands import demo, programs
from mlc_torch.device import offered, randomness
from tests.ranks.launching import launch

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = sorted(path.stem for path in EXAMPLES.glob("*.py"))
PNG = b"\x89PNG\r\n"

Program = Callable[..., dict[str, Any]]


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _seed_restored() -> Iterator[None]:
    before = randomness.seed
    yield
    randomness.reseed(before)


@pytest.fixture(params=["cpu", *(["gpu"] if offered() else [])])
def learn(request, tmp_path, monkeypatch) -> Program:
    """Runs a program on every device present, in full precision, and looks at its picture."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)

    def run(name: str, *arguments: str) -> dict[str, Any]:
        found = load(name).main(["--device", request.param, "--out", str(tmp_path), *arguments])
        assert (tmp_path / f"{name}.png").read_bytes().startswith(PNG)
        return found

    return run


def test_the_list_is_complete():
    tested = {name.removeprefix("test_learns_") for name in globals() if name.startswith("test_learns_")}
    assert set(PROGRAMS) == tested | {"torch_round_trip"}  # tests/interop/test_round_trip.py


def adam_rows(iterations: int) -> list[np.ndarray]:
    """Outputs for 0, 1, 2, 3 every 100 iterations, by the formulas in double precision (evidence.md F.2)."""
    x, y = np.arange(4.0), np.array([5.0, 7.0, 9.0, 11.0])
    w, m, v, rows = np.zeros(2), np.zeros(2), np.zeros(2), []
    for t in range(1, iterations + 1):
        output = w[0] * x + w[1]
        if t % 100 == 1:
            rows.append(output)
        error = 2 * (output - y) / 4
        g = np.array([(error * x).sum(), error.sum()])
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - 0.3 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-8)
    return rows


def test_learns_linear_regression(learn, capsys):
    found = learn("linear_regression")
    np.testing.assert_allclose(found["rows"], adam_rows(501), atol=1e-4)
    # The numbers that the original's author would have seen.
    np.testing.assert_allclose(found["rows"][1], [5.0072, 6.991, 8.9748, 10.9586], atol=1e-4)
    assert found["losses"][0] == 69.0
    np.testing.assert_allclose([found["weight"], found["bias"]], [2, 5], atol=1e-4)
    np.testing.assert_allclose(found["predictions"], [13, 15, 17, 19], atol=1e-4)
    assert capsys.readouterr().out.endswith("weight 2.0000, bias 5.0000\n")


def test_learns_pyobjc_style(learn, capsys):
    found = learn("pyobjc_style")
    np.testing.assert_allclose([found["weight"], found["bias"]], [2, 5], atol=1e-4)
    np.testing.assert_allclose(found["predictions"], [13, 15, 17, 19], atol=1e-4)
    assert capsys.readouterr().out.endswith("weight 2.0000, bias 5.0000\n")


def test_learns_digits(learn, capsys):
    found = learn("digits", "--epochs", "10")
    assert found["training"] > 0.9 and found["test"] > 0.9
    assert "test accuracy: 9" in capsys.readouterr().out.splitlines()[-1]


def test_learns_convolution_three_phases(learn):
    found = learn("convolution_three_phases", "--epochs", "4")
    assert found["test"] > 0.88
    assert np.mean(found["losses"][-20:]) < 0.2 * np.mean(found["losses"][:20])
    for values in found["norms"].values():
        assert len(values) == len(found["losses"]) and np.isfinite(values).all() and min(values) > 0


def test_learns_sequence_lstm(learn):
    found = learn("sequence_lstm", "--epochs", "60")
    assert found["error"] < 0.2 * found["constant"] < found["repeated"]
    assert found["difference"] < 1e-4


def test_learns_matrix_product(learn):
    found = learn("matrix_product")
    assert found["product"] < 1e-4
    assert found["solution"] < 1e-4
    assert found["last loss"] < 1e-6 * found["first loss"]


def test_learns_external_gradient(learn):
    found = learn("external_gradient", "--epochs", "300")
    assert found["error"] < 0.3 * found["straight"]
    assert found["rise"] > 0
    assert found["losses"][-1] < 0.1 * found["losses"][0]


def test_learns_many_processes(tmp_path):
    """By two processes, and by one that goes on where they stopped; by one from the start to the same losses."""
    program, folder = EXAMPLES / "many_processes.py", tmp_path / "out"
    given = ["--device", "cpu", "--out", str(folder)]
    found = launch(tmp_path, program, *given, "--epochs", "12", seconds=80)
    assert found.code == 0, found.output
    (said,) = [line for line in found.output.splitlines() if "accuracy" in line]
    assert said.startswith("2 processes, test accuracy: 9")
    assert (folder / "many_processes.png").read_bytes().startswith(PNG)
    main = load("many_processes").main
    resumed = main([*given, "--epochs", "14"])
    alone = main(["--device", "cpu", "--out", str(tmp_path / "alone"), "--epochs", "14"])
    assert resumed["done"] == 12 and alone["done"] == 0
    np.testing.assert_allclose(resumed["losses"], alone["losses"][-len(resumed["losses"]) :], rtol=1e-3)
    assert resumed["test"] > 0.9 and abs(resumed["test"] - alone["test"]) < 0.01


def test_external_gradient_is_the_derivative():
    """The gradient that reaches the first graph's weights, against differences of the loss."""
    module = load("external_gradient")
    x = np.linspace(-1, 1, module.POINTS, dtype=np.float32).reshape(-1, 1)
    y = np.tanh(6 * x)

    def first_weights(model: Any) -> Any:
        return model.first.layers[0].weights

    model = module.RisingCurve(programs.chosen_device("cpu"))
    model.step(x, y)
    layer = model.first.layers[0]
    found = np.frombuffer(model.first.gradientData(forParameter=layer.weights, layer=layer), np.float32)
    for index in (0, 7):
        losses = []
        for change in (-1e-2, 1e-2):
            changed = module.RisingCurve(programs.chosen_device("cpu"))
            first_weights(changed).numpy().reshape(-1)[index] += change
            losses.append(changed.step(x, y))
        assert found[index] == pytest.approx((losses[1] - losses[0]) / 2e-2, rel=0.02, abs=1e-5)


def test_the_double_softmax_is_warned_about_and_still_learns(tmp_path):
    with pytest.warns(MLCTrainingWarning, match="applies softmax itself"):
        found = demo.main(["--device", "cpu", "--epochs", "10", "--out", str(tmp_path), "--double-softmax"])
    assert found["test"] > 0.8


def test_the_demo_command_ends_with_its_accuracy(tmp_path, capsys):
    assert command(["demo", "--device", "cpu", "--epochs", "1", "--out", str(tmp_path / "new" / "folder")]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("test accuracy: ")
    assert (tmp_path / "new" / "folder" / "digits.png").exists()


def test_a_program_runs_as_a_script(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["linear_regression.py", "--device", "cpu", "--epochs", "2"])
    runpy.run_path(str(EXAMPLES / "linear_regression.py"), run_name="__main__")
    assert capsys.readouterr().out.startswith("iteration    0:   0.0000   0.0000   0.0000   0.0000")
    assert Path("out/linear_regression.png").exists()


@pytest.mark.parametrize("package", ["sklearn", "tqdm", "matplotlib"])
def test_a_missing_extra_is_named(package, monkeypatch, tmp_path):
    for name in [n for n in sys.modules if n.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)

    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == package:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    shown = {"sklearn": "scikit-learn"}.get(package, package)
    with pytest.raises(SystemExit, match=rf"needs {shown}: python -m pip install scikit-learn tqdm matplotlib$"):
        demo.main(["--device", "cpu", "--out", str(tmp_path)])


def test_a_device_that_is_not_there_is_explained(monkeypatch):
    monkeypatch.setenv("MLC_TORCH_DEVICE", "cpu")
    with pytest.raises(SystemExit, match=r"--device gpu: .*no GPU here"):
        programs.chosen_device("gpu")


@pytest.mark.parametrize("given", [["--epochs", "0"], ["--device", "ane"]])
def test_options_are_checked(given, capsys):
    with pytest.raises(SystemExit) as ended:
        demo.main(given)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err
