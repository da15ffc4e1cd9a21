"""The pytest plugin of mlc_torch.

It lies outside the package so that loading it imports neither torch nor mlc_torch: a project pays for them only when a
test uses a fixture or a marker of the plugin.

Fixtures: ``mlc_device`` (the test runs once on every device present), ``mlc_strict`` (refusals raise in this test),
``mlc_seed`` (random initializers and dropout repeat). Marker: ``mlc_gpu``. Options: ``--mlc-device``, ``--mlc-strict``,
``--mlc-seed``. ``mlc_torch.testing.assert_close`` compares tensors.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

_STRICT = "MLC_TORCH_STRICT"
_BEFORE = pytest.StashKey[str | None]()
_GPU = "mlc_gpu"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mlc_torch", "ML Compute on PyTorch")
    group.addoption(
        "--mlc-device",
        action="append",
        metavar="NAME",
        help="run mlc_device and mlc_gpu tests on this device: cpu, cuda, cuda:1, mps, gpu or all (the default); "
        "may be given several times; one that is not there is an error",
    )
    group.addoption("--mlc-strict", action="store_true", help="in every test, refusals raise MLCRefusal")
    group.addoption(
        "--mlc-seed", type=int, metavar="N", help="the number mlc_seed gives; by default each test has its own"
    )
    parser.addini("mlc_strict", "in every test, refusals raise MLCRefusal", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{_GPU}: needs a GPU that torch can use; where there is none it is skipped, and the summary says so"
    )
    if config.getoption("mlc_strict") or config.getini("mlc_strict"):
        config.stash[_BEFORE] = os.environ.get(_STRICT)
        os.environ[_STRICT] = "1"  # reaches threads and subprocesses too


def pytest_unconfigure(config: pytest.Config) -> None:
    if _BEFORE not in config.stash:
        return
    before = config.stash[_BEFORE]
    if before is None:
        os.environ.pop(_STRICT, None)
    else:
        os.environ[_STRICT] = before


def pytest_report_header(config: pytest.Config) -> str | None:
    wanted = config.getoption("mlc_device")
    said = [f"devices: {', '.join(wanted)}"] if wanted else []
    said += ["strict"] if _BEFORE in config.stash else []
    return f"mlc_torch: {'; '.join(said)}" if said else None


def _wanted(config: pytest.Config) -> list[str]:
    """The devices that were asked for, or all that are there."""
    from mlc_torch.testing import device_named, devices

    asked = [part.strip() for text in config.getoption("mlc_device") or ["all"] for part in text.split(",")]
    names: dict[str, None] = {}
    for name in asked:
        if name == "all":
            names |= dict.fromkeys(devices())
            continue
        try:
            device_named(name)
        except ValueError as error:
            raise pytest.UsageError(f"--mlc-device={name}: {error}") from None
        names[name] = None
    return list(names)


def _wanted_by(test: Any) -> list[str]:
    """The devices that a test runs on."""
    names = _wanted(test.config)
    if test.get_closest_marker(_GPU) is not None:
        return [name for name in names if name != "cpu"] or ["gpu"]  # without one the test is there, and skipped
    return names


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    name = "mlc_device"
    if name in metafunc.fixturenames and name not in _chosen_by(metafunc.definition) and _is_ours(metafunc, name):
        metafunc.parametrize(name, _wanted_by(metafunc.definition), indirect=True)


def _is_ours(metafunc: pytest.Metafunc, name: str) -> bool:
    """Whether the values of a fixture come from the one below, and not from one of that name that a project put over it.

    pytest tells only privately which fixtures of a name there are for a test, the nearest last; where it does not, all are
    taken for ours. The rule is pytest's own for fixtures with ``params``: one that is put over another and asks for it runs
    for every value of the other, unless it has values itself.
    """
    there = getattr(metafunc, "_arg2fixturedefs", {}).get(name)
    for fixture in reversed(there or ()):
        if getattr(fixture.func, "__module__", None) == __name__:
            return True
        if fixture.params is not None or name not in fixture.argnames:
            return False
    return not there


def _chosen_by(test: Any) -> set[str]:
    """The names that a test's own parametrize markers give values for."""
    chosen: set[str] = set()
    for marker in test.iter_markers("parametrize"):
        names = marker.args[0] if marker.args else marker.kwargs.get("argnames", ())
        chosen.update(name.strip() for name in (names.split(",") if isinstance(names, str) else names))
    return chosen


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker(_GPU) is not None]
    if not marked or any(name != "cpu" for name in _wanted(config)):
        return
    from mlc_torch.testing import accelerators
    from mlc_torch.testing.devices import cpu_stands_in

    why = "the options leave only the CPU" if accelerators() else "torch sees no GPU here"
    if cpu_stands_in():
        why = "with MLC_TORCH_GPU=cpu there is only the CPU; --mlc-device=gpu runs them on it"
    for item in marked:
        item.add_marker(pytest.mark.skip(reason=f"{_GPU}: {why}"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """What one test was refused is no reason for what fails in the next."""
    refusals = sys.modules.get("mlc_torch.refusals")
    if refusals is not None:
        refusals.forget_last()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """A test ends when the completion handlers of its graphs have ended, and fails with what one of them raised."""
    yield
    completion = sys.modules.get("mlc_torch.running.completion")
    if completion is not None:
        for error in completion.wait_for_handlers():
            raise error


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = [r for r in terminalreporter.getreports("skipped") if _GPU in r.keywords]
    if not skipped:
        return
    why = ", ".join(dict.fromkeys(str(r.longrepr[2]).removeprefix("Skipped: ") for r in skipped))
    terminalreporter.section("mlc_torch", yellow=True, bold=True)
    count = f"{len(skipped)} test{'s' * (len(skipped) != 1)}"
    terminalreporter.line(f"{count} for a GPU did NOT run ({why}):", yellow=True)
    for report in skipped:
        terminalreporter.line(f"  {report.nodeid}", yellow=True)


@pytest.fixture
def mlc_device(request: pytest.FixtureRequest) -> Any:
    """An ``MLCDevice``; the test runs once on every device present, or on those of ``--mlc-device``.

    A test that pytest cannot repeat, one of ``unittest`` for example, runs on the first of them.
    """
    from mlc_torch.testing import device_named

    return device_named(request.param if hasattr(request, "param") else _wanted_by(request.node)[0])


@pytest.fixture
def mlc_strict() -> Iterator[None]:
    """In this test a refusal raises ``MLCRefusal`` where it is made, and is no ``None`` that fails later."""
    import mlc_torch

    with pytest.MonkeyPatch.context() as environment, mlc_torch.strict():
        environment.setenv(_STRICT, "1")  # for threads and subprocesses, as ``--mlc-strict``
        yield


@pytest.fixture
def mlc_seed(request: pytest.FixtureRequest) -> Iterator[int]:
    """Seeds random initializers and dropout for this test; gives the number, the same in every run and on every device.

    It is made from the names of the file and of the test, and does not depend on where the file lies.
    """
    from mlc_torch.testing import seeded

    chosen = request.config.getoption("mlc_seed")
    test = request.node.nodeid.partition("::")[2].partition("[")[0]
    name = f"{request.node.path.name}::{test}"
    seed = zlib.crc32(name.encode()) if chosen is None else chosen
    request.node.add_report_section("call", "mlc_seed", f"mlc_seed is {seed}; --mlc-seed={seed} repeats this")
    with seeded(seed):
        yield seed
