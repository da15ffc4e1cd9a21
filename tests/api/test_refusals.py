"""Refusals: one warning each, the newest one at hand, exceptions where asked for, contexts apart."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import logging
import os
import pickle
import subprocess
import sys
import threading
import traceback
from pathlib import Path

import pytest

import mlc_torch as mlc
from mlc_torch import MLCRefusal, last_refusal, strict, unwrap
from mlc_torch.refusals import forget_last, is_strict, refuse
from mlc_torch.shown_by_default import ShownByDefault
from mlc_torch.spelling import MLCObject, declare


def refused():
    return mlc.MLCTensorDescriptor(shape=[0], dataType=1)


def test_one_warning_and_a_fresh_refusal_each_time(caplog):
    with caplog.at_level(logging.WARNING):
        assert refused() is None
        first = last_refusal()
        assert refused() is None
    assert [r.name for r in caplog.records] == ["mlc_torch", "mlc_torch"]
    assert caplog.records[0].getMessage() == f"refused: {first}"
    assert last_refusal() is not first and isinstance(first, ValueError)


def test_a_refusal_says_who_which_argument_what_was_expected_and_what_came():
    refused()
    why = last_refusal()
    assert why.member == "MLCTensorDescriptor(shape:dataType:)"
    assert why.reason == "every dimension of shape must be at least 1, got [0]"
    assert str(why) == f"{why.member}: {why.reason}"
    assert str(MLCRefusal("because")) == "because"
    again = pickle.loads(pickle.dumps(why))
    assert (again.reason, again.member) == (why.reason, why.member)


def test_a_nested_refusal_is_reported_once_by_the_member_that_was_called(caplog):
    assert mlc.MLCTensor(width=0, height=1, featureChannelCount=1, batchSize=1) is None
    assert len(caplog.records) == 1
    assert last_refusal().member == "MLCTensor(width:height:featureChannelCount:batchSize:)"


def test_strict_raises_and_logs_nothing(caplog):
    with strict(), pytest.raises(MLCRefusal, match="at least 1") as error:
        refused()
    assert caplog.records == [] and last_refusal() is error.value
    assert refused() is None


def frames_of_ours(error: BaseException) -> list[str]:
    room = str(Path(mlc.__file__).parent)
    return [f.name for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(room)]


@pytest.mark.parametrize(
    "call",
    [
        refused,
        lambda: mlc.MLCTensor.tensorWithShape_([0]),
        lambda: mlc.MLCInferenceGraph(graphObjects=[mlc.MLCGraph()]).compile(options=[], device=mlc.MLCDevice.cpu()),
        lambda: mlc.MLCInferenceGraph(graphObjects=[mlc.MLCGraph()]).execute(inputsData={}, batchSize=1),
        lambda: asyncio.run(
            mlc.MLCInferenceGraph(graphObjects=[mlc.MLCGraph()]).executeAsync(inputsData={}, batchSize=1)
        ),
    ],
    ids=["initializer", "selector", "compile", "execute", "async"],
)
def test_in_strict_mode_the_traceback_ends_at_the_program_s_own_line(call):
    with strict(), pytest.raises(MLCRefusal) as error:
        call()
    assert len(frames_of_ours(error.value)) <= 2  # a coroutine awaits another
    assert error.value.__context__ is None or error.value.__suppress_context__


def test_a_program_s_own_code_among_the_frames_stays_in_the_traceback():
    class Reader(MLCObject):
        @declare("init?(block: () -> Void)", "readerWithBlock:")
        def _create(cls, block):
            block()

    with strict(), pytest.raises(MLCRefusal) as error:
        Reader(block=refused)
    assert "refused" in [f.name for f in traceback.extract_tb(error.value.__traceback__)]


def test_strict_may_be_nested_and_switched_off():
    with strict():
        with strict(False):
            assert refused() is None
        with pytest.raises(MLCRefusal):
            refused()
    assert not is_strict()


def test_strict_as_a_decorator():
    @strict()
    def careful():
        return refused()

    for _ in range(2):
        with pytest.raises(MLCRefusal):
            careful()


@pytest.mark.parametrize("value", ["1", "true", "yes", "on", "True", " 1 ", "0", "false", "no", "off", "OFF", ""])
def test_the_environment_switches_it_on(monkeypatch, value):
    monkeypatch.setenv("MLC_TORCH_STRICT", value)
    assert is_strict() is (value.strip().lower() in {"1", "true", "yes", "on"})
    with strict(False):
        assert refused() is None


def test_a_word_that_says_neither_on_nor_off_is_told(monkeypatch):
    monkeypatch.setenv("MLC_TORCH_STRICT", "maybe")
    with pytest.raises(
        MLCRefusal, match="MLC_TORCH_STRICT='maybe' is not known; 1, true, yes, on and 0, false, no, off are"
    ):
        refused()
    with strict(False):
        assert refused() is None


def test_threads_do_not_see_each_others_strictness_or_refusals():
    refused()
    mine, seen = last_refusal(), {}

    def other():
        seen["before"] = last_refusal()
        seen["answer"] = mlc.MLCTensorDescriptor(shape=[-5], dataType=1)
        seen["after"] = str(last_refusal())

    with strict():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen["before"] is None and seen["answer"] is None and "-5" in seen["after"]
    assert last_refusal() is mine


def test_tasks_do_not_see_each_others_strictness():
    async def careful():
        with strict():
            await asyncio.sleep(0)
            with pytest.raises(MLCRefusal):
                refused()

    async def careless():
        for _ in range(3):
            await asyncio.sleep(0)
            assert refused() is None

    async def both():
        await asyncio.gather(careful(), careless(), careful())

    asyncio.run(both())


def test_unwrap():
    assert unwrap(0) == 0 and unwrap([]) == [] and unwrap(False) is False
    refused()
    with pytest.raises(MLCRefusal, match=r"unexpectedly found None; the last refusal was: MLCTensorDescriptor"):
        unwrap(None)

    def alone():
        forget_last()
        with pytest.raises(MLCRefusal, match=r"^unexpectedly found None$"):
            unwrap(None)

    contextvars.copy_context().run(alone)


def test_refuse_is_an_exception_like_any_other_outside_a_member():
    with pytest.raises(MLCRefusal, match="because"):
        refuse("because")


def test_other_exceptions_pass_through():
    class Broken(MLCObject):
        @declare("init?(size: Int)", "brokenWithSize:")
        def _create(cls, size):
            raise [RuntimeError, ValueError, KeyError, AssertionError][size]("a mistake of ours")

    for size, error in enumerate((RuntimeError, ValueError, KeyError, AssertionError)):
        for make in (lambda: Broken(size=size), lambda: Broken.brokenWithSize_(size)):  # noqa: B023
            with pytest.raises(error, match="a mistake of ours") as caught:
                make()
            assert not isinstance(caught.value, MLCRefusal)


def test_a_property_that_refuses_keeps_its_value(caplog):
    layer = mlc.MLCActivationLayer.relu
    layer.isDebuggingEnabled = True
    with pytest.raises(TypeError):
        layer.isDebuggingEnabled = "yes"
    assert layer.isDebuggingEnabled is True


LOOP = """
import mlc_torch as m
for size in (0, 0, 0, -5):
    print(m.MLCTensorDescriptor(shape=[size], dataType=1))
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_a_program_without_logging_sees_each_refusal_once_and_a_count_at_its_end():
    found = run(LOOP)
    said = "mlc_torch: refused: MLCTensorDescriptor(shape:dataType:): every dimension of shape must be at least 1, got "
    assert found.stdout == "None\n" * 4
    assert found.stderr.splitlines() == [f"{said}[0]", f"{said}[-5]", f"{said}[0] (and 2 more times)"]


@pytest.mark.parametrize(
    ("setup", "lines"),
    [
        ("import logging; logging.basicConfig(format='mine %(message)s')", 4),
        ("import logging; logging.getLogger('mlc_torch').addHandler(logging.NullHandler())", 0),
        ("import logging; logging.getLogger('mlc_torch').setLevel('ERROR')", 0),
    ],
    ids=["configured", "a handler that drops", "a level"],
)
def test_a_program_that_sets_up_logging_gets_every_record_and_nothing_from_us(setup, lines):
    found = run(f"{setup}\n{LOOP}").stderr.splitlines()
    assert len(found) == lines and all(line.startswith("mine refused: ") for line in found)


@pytest.fixture
def shown(capsys):
    """A logger with our handler, and above it one that nobody has set up."""
    logger = logging.Logger("ours")  # noqa: LOG001 - known to nobody else
    logger.parent = logging.Logger("above")  # noqa: LOG001
    handler = ShownByDefault(logger)
    logger.addHandler(handler)
    yield logger, handler, lambda: capsys.readouterr().err.splitlines()
    atexit.unregister(handler.count_repetitions)


def test_the_handler_falls_silent_when_the_program_gets_one_of_its_own(shown):
    logger, handler, lines = shown
    logger.warning("one")
    logger.info("too low")
    logger.parent.addHandler(logging.NullHandler())
    logger.warning("two")
    logger.propagate = False  # then nothing above listens
    logger.warning("three")
    assert lines() == ["ours: one", "ours: three"]


def test_very_many_different_lines_are_shown_and_not_all_remembered(shown):
    logger, handler, lines = shown
    for i in range(2500):
        logger.warning("%d", i)
    logger.warning("%d", 0)
    assert len(lines()) == 2500 and len(handler._repeated) <= 1000
    handler.count_repetitions()
    assert lines() == ["ours: 0 (and 1 more time)"]


def test_a_program_without_standard_error_goes_on(shown, monkeypatch):
    logger, handler, lines = shown
    monkeypatch.setattr(sys, "stderr", None)
    logger.warning("nobody reads this")
    handler.count_repetitions()


def test_a_swift_program_sees_each_line_once_too():
    """Under its module's name, and Python's warnings among them; what is remembered has the same end."""
    code = """import logging, warnings
from mlc_torch.swift import inside
inside.own_process()
for _ in range(3):
    warnings.warn("beware")
for i in [*range(2500), 0, 2499]:
    logging.getLogger("mlc_torch").warning("%d", i)
inside.finish()
"""
    first, *lines = run("import warnings; warnings.simplefilter('always')\n" + code).stderr.splitlines()
    assert first == "MLCompute: UserWarning: beware"
    assert lines[:2501] == [f"MLCompute: {i}" for i in [*range(2500), 2499]]
    assert lines[2501:] == ["MLCompute: UserWarning: beware (and 2 more times)", "MLCompute: 0 (and 1 more time)"]


def test_a_swift_program_without_standard_error_goes_on():
    """What shows refusals there is another handler."""
    quiet = "import sys\nsys.stderr = None\nimport mlc_torch.swift.inside\n"
    assert run(quiet + LOOP).stdout == "None\n" * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_child_counts_its_own():
    code = f"""{LOOP}
import os, sys
if os.fork():
    os.wait()
"""
    assert sum("more time" in line for line in run(code).stderr.splitlines()) == 1
