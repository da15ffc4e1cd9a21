"""The pytest plugin, as a project sees it."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

import mlc_torch.testing  # torch is here before pytester looks, so that runs inside this process need not load it again

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
INSTALLED = any(e.value == "_mlc_torch_pytest" for e in importlib.metadata.entry_points(group="pytest11"))
LOAD = [] if INSTALLED else ["-p", "_mlc_torch_pytest"]
NO_GPU = not mlc_torch.testing.accelerators()


@pytest.fixture
def project(pytester, monkeypatch):
    monkeypatch.delenv("MLC_TORCH_STRICT", raising=False)
    monkeypatch.delenv("MLC_TORCH_DEVICE", raising=False)
    monkeypatch.delenv("MLC_TORCH_GPU", raising=False)
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider -p no:benchmark")
    return pytester


def run(project, text: str, *options: str):
    project.makepyfile(text)
    return project.runpytest_inprocess(*LOAD, *options)


def outside(*command: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Another Python, which finds what this one finds."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MLC_TORCH", "PYTEST"))}
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=environment | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"} | more,
        capture_output=True,
        text=True,
        check=False,
    )


# Loading


def test_loading_it_imports_neither_torch_nor_mlc_torch(tmp_path):
    """A project whose tests do not use it pays nothing, with every option given."""
    (tmp_path / "test_other.py").write_text(
        "import sys\n\n\ndef test_nothing_is_loaded():\n"
        "    assert '_mlc_torch_pytest' in sys.modules\n"
        "    assert not {'torch', 'mlc_torch', 'numpy'} & set(sys.modules)\n"
    )
    options = ["--mlc-device=cuda", "--mlc-strict", "--mlc-seed=3"]
    # Other plugins may be there, and import what they like.
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    load = ["-p", "_mlc_torch_pytest", "-p", "no:cacheprovider"]
    found = outside("-m", "pytest", *load, *options, cwd=tmp_path, **alone)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "mlc_torch: devices: cuda; strict" in found.stdout


def test_it_describes_itself(project):
    found = project.runpytest_inprocess(*LOAD, "--markers")
    found.stdout.fnmatch_lines(["@pytest.mark.mlc_gpu: needs a GPU *"])
    found = project.runpytest_inprocess(*LOAD, "--fixtures", "-v")
    found.stdout.fnmatch_lines(["mlc_device*", "mlc_strict*", "mlc_seed*"])
    found = project.runpytest_inprocess(*LOAD, "--help")
    found.stdout.fnmatch_lines(["ML Compute on PyTorch:", "*--mlc-device=NAME*", "*--mlc-strict*", "*--mlc-seed=N*"])


# Devices

DEVICE = """
    import mlc_torch

    def test_it(mlc_device):
        assert isinstance(mlc_device, mlc_torch.MLCDevice)
        print("on", mlc_device.torch_device)
"""


def test_a_test_runs_on_every_device_present(project):
    found = run(project, DEVICE, "-v", "-s")
    found.assert_outcomes(passed=len(mlc_torch.testing.devices()))
    for name in mlc_torch.testing.devices():
        found.stdout.fnmatch_lines([f"*::test_it[[]{name}[]]*on {name}*"])


def test_the_option_chooses_the_device(project):
    found = run(project, DEVICE, "-v", "-s", "--mlc-device=cpu")
    found.assert_outcomes(passed=1)
    found.stdout.fnmatch_lines(["mlc_torch: devices: cpu", "*::test_it[[]cpu[]]*on cpu*"])
    run(project, DEVICE, "--mlc-device=cpu,all", "--mlc-device", "cpu").assert_outcomes(
        passed=len(mlc_torch.testing.devices())
    )


def test_a_device_that_is_not_there_is_an_error(project):
    found = run(project, DEVICE, "--mlc-device=cuda:99")
    assert found.ret == pytest.ExitCode.INTERRUPTED
    found.stdout.fnmatch_lines(["*--mlc-device=cuda:99: there is no device 'cuda:99' here; there is cpu*"])


CHOSEN = """
    import unittest
    import pytest

    @pytest.mark.parametrize("mlc_device", ["cpu"], indirect=True)
    def test_of_its_own(mlc_device):
        assert mlc_device.torch_device.type == "cpu"

    @pytest.mark.parametrize(argnames="number, mlc_device", argvalues=[(1, "cpu"), (2, "cpu")], indirect=["mlc_device"])
    def test_beside_another(number, mlc_device):
        assert mlc_device.torch_device.type == "cpu"

    @pytest.mark.parametrize(["mlc_device"], [("text",)])
    def test_without_the_fixture(mlc_device):
        assert mlc_device == "text"

    def test_asks_later(request):
        print("late on", request.getfixturevalue("mlc_device").torch_device)

    class TestOfUnittest(unittest.TestCase):
        @pytest.fixture(autouse=True)
        def device(self, mlc_device):
            self.device = mlc_device

        def test_it(self):
            print("unittest on", self.device.torch_device)
"""


def test_a_test_may_choose_its_devices_or_be_one_that_is_not_repeated(project):
    found = run(project, CHOSEN, "-v", "-s")
    found.assert_outcomes(passed=6)
    found.stdout.fnmatch_lines(["*::test_of_its_own[[]cpu[]]*", "*late on cpu*", "*unittest on cpu*"])


OVERRIDING = {
    "with values": (
        """
        @pytest.fixture(params=["a", "b"])
        def mlc_device(request):
            return f"mine {request.param}"
        """,
        ["mine a", "mine b"],
    ),
    "with one": (
        """
        @pytest.fixture(scope="session")
        def mlc_device():
            return "mine"
        """,
        ["mine"],
    ),
    "that asks for ours": (
        """
        @pytest.fixture
        def mlc_device(mlc_device):
            return f"mine over {mlc_device}"
        """,
        ["mine over <cpu>", "mine over <cuda>"],
    ),
}


@pytest.mark.parametrize("place", ["conftest", "module"])
@pytest.mark.parametrize(("text", "want"), OVERRIDING.values(), ids=OVERRIDING.keys())
def test_a_project_may_put_its_own_fixture_over_ours(project, monkeypatch, text, want, place):
    """It runs as often as pytest lets any fixture run that is put over another."""
    monkeypatch.setattr(mlc_torch.testing, "devices", lambda: ["cpu", "cuda"])
    monkeypatch.setattr(mlc_torch.testing, "device_named", lambda name: f"<{name}>")
    fixture = "import pytest\n" + textwrap.dedent(text)
    test = "def test_it(mlc_device):\n    print('given', mlc_device)\n"
    if place == "conftest":
        project.makeconftest(fixture)
    found = run(project, test if place == "conftest" else fixture + test, "-rP")
    assert [line for line in found.outlines if line.startswith("given")] == [f"given {name}" for name in want]
    found.assert_outcomes(passed=len(want))


def test_a_folder_may_put_its_own_fixture_over_that_of_the_project(project, monkeypatch):
    """The nearest counts, and beside that folder the next."""
    monkeypatch.setattr(mlc_torch.testing, "devices", lambda: ["cpu", "cuda"])
    monkeypatch.setattr(mlc_torch.testing, "device_named", lambda name: f"<{name}>")
    asks = "import pytest\n" + textwrap.dedent(OVERRIDING["that asks for ours"][0])
    project.makeconftest(asks)
    folder = project.mkpydir("inner")
    (folder / "conftest.py").write_text("import pytest\n" + textwrap.dedent(OVERRIDING["with values"][0]))
    for path in (folder / "test_in.py", project.path / "test_out.py"):
        path.write_text(f"def test_it(mlc_device):\n    print('given {path.stem}', mlc_device)\n")
    found = project.runpytest_inprocess(*LOAD, "-rP")
    assert [line for line in found.outlines if line.startswith("given")] == [
        "given test_in mine a",
        "given test_in mine b",
        "given test_out mine over <cpu>",
        "given test_out mine over <cuda>",
    ]


def test_where_a_test_is_not_repeated_the_option_counts_too(project, monkeypatch):
    monkeypatch.setattr(mlc_torch.testing, "device_named", lambda name: SimpleNamespace(torch_device=f"<{name}>"))
    found = run(project, CHOSEN, "-s", "-k", "later or Unittest", "--mlc-device=cuda,cpu")
    found.stdout.fnmatch_lines(["*late on <cuda>*", "*unittest on <cuda>*"])


def test_the_environment_narrows_the_devices(project, monkeypatch):
    monkeypatch.setenv("MLC_TORCH_DEVICE", "cpu")
    run(project, DEVICE).assert_outcomes(passed=1)
    assert mlc_torch.testing.devices() == ["cpu"]


# Tests for a GPU

GPU = """
    import pytest

    @pytest.mark.mlc_gpu
    def test_plain():
        pass

    @pytest.mark.mlc_gpu
    class TestAll:
        def test_device(self, mlc_device):
            assert mlc_device.torch_device.type != "cpu"

    def test_other(mlc_device):
        pass
"""


def test_tests_for_a_gpu_are_skipped_loudly_where_none_is_left(project, monkeypatch):
    monkeypatch.setenv("MLC_TORCH_DEVICE", "cpu")
    found = run(project, GPU)
    found.assert_outcomes(passed=1, skipped=2)
    found.stdout.fnmatch_lines(
        [
            "*= mlc_torch =*",
            "2 tests for a GPU did NOT run (mlc_gpu: torch sees no GPU here):",
            "  test_*.py::test_plain",
            "  test_*.py::TestAll::test_device[[]gpu[]]",
        ]
    )


def test_no_word_where_no_test_needed_a_gpu(project):
    assert "did NOT run" not in run(project, DEVICE).stdout.str()


def test_they_run_where_a_gpu_is(project, monkeypatch):
    """One is pretended: the name is there, and the fixture is given the CPU under it."""
    if NO_GPU:
        monkeypatch.setattr(mlc_torch.testing, "devices", lambda: ["cpu", "cuda"])
        monkeypatch.setattr(mlc_torch.testing, "device_named", lambda name: name)
    found = run(project, GPU.replace('mlc_device.torch_device.type != "cpu"', 'str(mlc_device) != "cpu"'), "-v")
    found.assert_outcomes(passed=4)
    assert "did NOT run" not in found.stdout.str()


def test_the_option_may_leave_only_the_cpu(project, monkeypatch):
    monkeypatch.setattr(mlc_torch.testing, "accelerators", lambda: ["cuda"])
    found = run(project, GPU, "--mlc-device=cpu")
    found.assert_outcomes(passed=1, skipped=2)
    found.stdout.fnmatch_lines(["2 tests for a GPU did NOT run (mlc_gpu: the options leave only the CPU):"])


def test_the_cpu_that_stands_in_for_a_gpu_is_none(project, monkeypatch):
    monkeypatch.setenv("MLC_TORCH_GPU", "cpu")
    assert mlc_torch.testing.devices() == ["cpu"] and mlc_torch.testing.accelerators() == []
    with pytest.raises(ValueError, match="there is cpu$"):
        mlc_torch.testing.device_named("abacus")
    found = run(project, GPU)
    found.assert_outcomes(passed=1, skipped=2)
    why = "mlc_gpu: with MLC_TORCH_GPU=cpu there is only the CPU; --mlc-device=gpu runs them on it"
    found.stdout.fnmatch_lines([f"2 tests for a GPU did NOT run ({why}):"])
    on_it = GPU.replace('torch_device.type != "cpu"', 'type.name == "gpu"')
    run(project, on_it, "--mlc-device=gpu").assert_outcomes(passed=3)


# Strict mode

REFUSED = """
    import os
    from concurrent.futures import ThreadPoolExecutor
    import pytest
    import mlc_torch

    def test_none():
        assert mlc_torch.MLCTensorDescriptor(shape=[]) is None

    def test_fixture(mlc_strict):
        with pytest.raises(mlc_torch.MLCRefusal):
            mlc_torch.MLCTensorDescriptor(shape=[])

    def test_fixture_in_a_thread(mlc_strict):
        with ThreadPoolExecutor(1) as pool, pytest.raises(mlc_torch.MLCRefusal):
            pool.submit(mlc_torch.MLCTensorDescriptor, shape=[]).result()

    def test_after_the_fixture():
        assert mlc_torch.MLCTensorDescriptor(shape=[]) is None
"""


def test_refusals_answer_none_unless_a_test_asks(project):
    run(project, REFUSED).assert_outcomes(passed=4)
    assert "MLC_TORCH_STRICT" not in os.environ


def test_strict_everywhere(project):
    found = run(project, REFUSED, "--mlc-strict")
    found.assert_outcomes(passed=2, failed=2)
    found.stdout.fnmatch_lines(["mlc_torch: strict", "*MLCRefusal: MLCTensorDescriptor(shape:): shape is empty*"])
    assert "MLC_TORCH_STRICT" not in os.environ


def test_strict_by_the_ini_file(project, monkeypatch):
    monkeypatch.setenv("MLC_TORCH_STRICT", "0")
    project.makeini("[pytest]\nmlc_strict = true\naddopts = -p no:cacheprovider -p no:benchmark")
    run(project, REFUSED).assert_outcomes(passed=2, failed=2)
    assert os.environ["MLC_TORCH_STRICT"] == "0"


def test_what_one_test_was_refused_the_next_does_not_know(project):
    text = """
        import mlc_torch

        def test_refused():
            assert mlc_torch.last_refusal() is None
            assert mlc_torch.MLCTensorDescriptor(shape=[]) is None and mlc_torch.last_refusal() is not None

        def test_after():
            assert mlc_torch.last_refusal() is None
    """
    mlc_torch.MLCTensorDescriptor(shape=[])
    run(project, text).assert_outcomes(passed=2)


# Seeds

SEEDED = """
    import mlc_torch
    import pytest

    def draw():
        kind = mlc_torch.MLCRandomInitializerType.uniform
        return mlc_torch.MLCTensor(shape=[4], randomInitializerType=kind).numpy().tolist()

    def test_seed(mlc_seed, mlc_device):
        first = draw()
        assert mlc_torch.MLCPlatform.getRNGseed() == mlc_seed
        assert draw() == first
        print("drew", mlc_seed, first)

    def test_after():
        assert mlc_torch.MLCPlatform.getRNGseed() is None

    def test_fails(mlc_seed):
        assert False
"""


def test_seeds_repeat_and_leave_no_trace(project):
    drawn = []
    for options in ([], [], ["--mlc-seed=7"]):
        found = run(project, SEEDED, "-rP", *options)
        found.assert_outcomes(passed=1 + len(mlc_torch.testing.devices()), failed=1)
        drawn.append([line for line in found.outlines if line.startswith("drew")])
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == 1  # the same on every device
    assert drawn[2][0].startswith("drew 7 ")
    found.stdout.fnmatch_lines(["*mlc_seed is 7; --mlc-seed=7 repeats this"])


def test_the_seed_does_not_depend_on_where_pytest_is_started(project):
    """Nor on where the file lies: a folder of another name, another root."""
    said = []
    for folder in ("a", "a/b"):
        place = project.path / folder
        place.mkdir()
        (place / "test_it.py").write_text("def test_seed(mlc_seed):\n    print('the seed', mlc_seed)\n")
        for root, given in ((project.path, place / "test_it.py"), (place, place)):
            found = project.runpytest_inprocess(*LOAD, "-s", f"--rootdir={root}", str(given), "--import-mode=importlib")
            said += [line[line.index("the seed") :] for line in found.outlines if "the seed" in line]
    assert len(said) >= 4 and len(set(said)) == 1
    other = run(project, "def test_another(mlc_seed):\n    print('the seed', mlc_seed)\n", "-s", "-k", "another")
    assert said[0] not in other.stdout.str()


# The example


def test_the_example_project(tmp_path):
    """A project's own suite of three tests, through pytest-xdist, which must not swallow what was skipped."""
    shutil.copytree(
        ROOT / "examples" / "pytest_project", tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__")
    )
    found = outside("-m", "pytest", *LOAD, "-p", "no:cacheprovider", "-n1", cwd=tmp_path / "project")
    assert found.returncode == 0, found.stdout + found.stderr
    count = len(mlc_torch.testing.devices())
    said = f"{1 + count} passed, 1 skipped" if NO_GPU else f"{2 * count} passed"
    assert said in found.stdout
    assert ("1 test for a GPU did NOT run" in found.stdout) == NO_GPU


def test_a_handler_that_fails_on_its_own_thread_fails_the_test(project, monkeypatch):
    monkeypatch.setattr("threading.excepthook", lambda args: None)  # this run's own pytest listens there, too
    project.makepyfile(
        """
        import time
        from mlc_torch.running.completion import CompletionQueue

        queue = CompletionQueue()

        def handler():
            time.sleep(0.2)
            assert 1 == 2, "in the handler"

        def test_that_asserts_nothing():
            queue.finish(handler, wait=False)

        def test_after_it():
            pass
        """
    )
    result = project.runpytest_inprocess(*LOAD, "-p", "no:threadexception")
    result.assert_outcomes(failed=1, passed=1)
    assert "in the handler" in result.stdout.str()
