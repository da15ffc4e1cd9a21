"""Refusals: one warning each, the newest one at hand, exceptions where asked for, contexts apart."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import pickle
import subprocess
import sys
import threading

import pytest

import mlc_torch as mlc
from mlc_torch import MLCRefusal, last_refusal, strict, unwrap
from mlc_torch.refusals import _last, is_strict, refuse
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


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("0", False), ("", False), ("yes", True)])
def test_the_environment_switches_it_on(monkeypatch, value, expected):
    monkeypatch.setenv("MLC_TORCH_STRICT", value)
    assert is_strict() is expected
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
        _last.set(None)
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


def test_nothing_is_printed_by_default_but_a_warning():
    code = "import mlc_torch as m; print(m.MLCTensorDescriptor(shape=[0], dataType=1))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "None\n"
    quiet = f"import logging; logging.getLogger('mlc_torch').setLevel('ERROR'); {code}"
    assert subprocess.run([sys.executable, "-c", quiet], capture_output=True, text=True, check=True).stderr == ""
