"""``install()``: a script's own imports work where the real modules are absent, and the stand-ins say what they are."""

from __future__ import annotations

import importlib
import io
import subprocess
import sys
import types

import pytest
import torch

import mlc_torch.objc as MLCompute
from mlc_torch.objc.installing import Finder

NAMES = ("MLCompute", "objc", "Foundation", "Metal")


@pytest.fixture
def installed():
    before = list(sys.meta_path)
    MLCompute.install()
    MLCompute.install()
    yield
    MLCompute.uninstall()
    assert sys.meta_path == before and not set(NAMES) & set(sys.modules)


def test_install_makes_plain_import_work(installed):
    assert len([finder for finder in sys.meta_path if isinstance(finder, Finder)]) == 1
    found = importlib.import_module("MLCompute")
    assert found.MLCTensor is MLCompute.MLCTensor and found.MLCDataTypeInt8 == 8
    assert "MLCTensor" in dir(found) and found.__spec__.name == "MLCompute"
    assert sys.modules["mlc_torch.objc"].__spec__.name == "mlc_torch.objc"
    with pytest.raises(AttributeError, match="MLCTensorDescriptor"):
        found.MLCTensorDescripter  # noqa: B018
    with pytest.raises(ImportError):
        importlib.import_module("MLComputeOther")


@pytest.mark.parametrize("name", NAMES)
def test_stand_ins_say_what_they_are(installed, name):
    found = importlib.import_module(name)
    assert "stand-in by mlc_torch.objc" in found.__doc__ and "stand-in by mlc_torch.objc" in repr(found)
    with pytest.raises(AttributeError, match="nonsense"):
        found.nonsense  # noqa: B018
    with pytest.raises(
        ImportError, match=rf"^cannot import name 'nonsense' from '{name}' \(a stand-in by mlc_torch.objc\)$"
    ):
        exec(f"from {name} import nonsense")
    if name != "MLCompute":
        with pytest.raises(AttributeError, match="stand-in"):
            found.nonsense  # noqa: B018
    assert all(hasattr(found, attribute) for attribute in dir(found)) and dir(found)


@pytest.mark.parametrize("name", NAMES)
def test_install_does_not_replace_a_real_one(installed, tmp_path, monkeypatch, name):
    (tmp_path / f"{name}.py").write_text("real = True")
    monkeypatch.syspath_prepend(tmp_path)
    found = importlib.import_module(name)
    try:
        assert found.real and not hasattr(found, "MLCTensor")
        MLCompute.uninstall()
        assert sys.modules[name] is found
    finally:
        del sys.modules[name]


def test_uninstall_without_install_does_nothing():
    other = sys.modules["MLCompute"] = types.ModuleType("MLCompute")
    try:
        MLCompute.uninstall()
        assert sys.modules["MLCompute"] is other
    finally:
        del sys.modules["MLCompute"]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("MLCompute")


def test_star_import_brings_what_pyobjcs_brings(installed):
    names: dict = {}
    exec("from MLCompute import *", names)
    assert {"MLCTensor", "MLCDataType", "MLCDataTypeFloat32", "MLCLossTypeDebugDescription", "NSData"} <= set(names)
    assert not {"install", "wrap", "unwrap"} & set(names)
    exec("from Foundation import *", names)
    assert names["NSNumber"].numberWithInt_(3) == 3


def test_objc(installed):
    objc = importlib.import_module("objc")
    tensor = MLCompute.MLCTensor.tensorWithShape_([2])
    assert isinstance(MLCompute.MLCTensor.label, objc.selector) and isinstance(MLCompute.MLCTensor, objc.objc_class)
    assert isinstance(tensor, objc.objc_object) and isinstance(MLCompute.MLCLossTypeDebugDescription, objc.function)
    assert objc.lookUpClass("MLCTensor") is MLCompute.MLCTensor in objc.getClassList()
    assert objc.nil is None is objc.NULL and objc.YES is True and objc.NO is False
    assert MLCompute.MLCTensor.hasValidNumerics.__metadata__()["retval"]["type"] == objc._C_NSBOOL
    with objc.autorelease_pool():
        pass
    with pytest.raises(objc.nosuchclass_error):
        objc.lookUpClass("NSWindow")
    assert issubclass(objc.nosuchclass_error, objc.error)


def test_objc_in_a_subclass(installed):
    objc = importlib.import_module("objc")

    class Net(MLCompute.MLCGraph):
        def init(self):
            self = objc.super(Net, self).init()
            self.steps = 0
            return self

        @objc.typedSelector(b"v@:i")
        def step_(self, n):
            self.steps += n

        @objc.python_method
        def twice(self, n):
            self.step_(n)
            self.step_(n)

    net = Net.alloc().init()
    net.twice(2)
    assert net.steps == 4


def test_load_bundle(installed):
    objc = importlib.import_module("objc")
    names: dict = {}
    objc.loadBundle("MLCompute", names, bundle_path="/System/Library/Frameworks/MLCompute.framework")
    assert names["MLCTensor"] is MLCompute.MLCTensor
    with pytest.raises(objc.error, match="only ML Compute is"):
        objc.loadBundle("AppKit", {}, bundle_path="/System/Library/Frameworks/AppKit.framework")


def test_nslog_without_standard_error(installed, monkeypatch):
    foundation = importlib.import_module("Foundation")
    closed = io.StringIO()
    closed.close()
    for nobody in (None, closed):
        monkeypatch.setattr(sys, "stderr", nobody)
        foundation.NSLog("nobody reads %@", "this")


def test_foundation(installed, capsys):
    foundation = importlib.import_module("Foundation")
    assert foundation.NSArray.arrayWithObjects_(1, 2, None).count() == 2
    assert foundation.NSNumber.numberWithFloat_(1) == 1.0 and foundation.NSNumber.numberWithBool_(1) is True
    assert foundation.NSString.stringWithString_("a") == "a" and foundation.NSMakeRange(1, 2).length == 2
    assert foundation.NSArray.array().indexOfObject_(1) == foundation.NSNotFound
    pool = foundation.NSAutoreleasePool.alloc().init()
    assert pool.drain() is None
    foundation.NSLog("loss %@ after %d", [1.5], 3)
    foundation.NSLog("100 %")
    assert capsys.readouterr().err == "loss [1.5] after 3\n100 %\n"
    assert foundation.NSObject is MLCompute.NSObject


def test_text_from_c(installed):
    read = importlib.import_module("Foundation").NSString.stringWithUTF8String_
    assert read("abc\u00e9".encode()) == "abc\u00e9" == read("abc\u00e9") and read(b"a\0b") == "a"
    assert read(b"\xff") is None


@pytest.mark.parametrize(
    ("text", "values", "printed"),
    [
        ("50% of %@", ["x"], "50% of x"),
        ("%ld items, %5.2f%%", [3, 1.5], "3 items,  1.50%"),
        ("%lu and %@", [3], "3 and %@"),
        ("%d", ["three"], "three"),
        ("%d", [float("inf")], "inf"),
        ("%@", [(1, 2)], "(1, 2)"),
        ("100%% of nothing, %d", [], "100% of nothing, %d"),
        ("no place", [1], "no place"),
    ],
)
def test_a_log_line_never_fails(installed, capsys, text, values, printed):
    importlib.import_module("Foundation").NSLog(text, *values)
    assert capsys.readouterr().err == printed + "\n"


def test_metal(installed, monkeypatch):
    metal = importlib.import_module("Metal")
    there = [torch.device("cuda:0"), torch.device("cuda:1")]
    monkeypatch.setattr("mlc_torch.device._present", lambda: there)
    assert metal.MTLCopyAllDevices() == there and metal.MTLCreateSystemDefaultDevice() == there[0]
    device = MLCompute.MLCDevice.deviceWithGPUDevices_(metal.MTLCopyAllDevices())
    assert device.gpuDevices() == there
    monkeypatch.setattr("mlc_torch.device._present", list)
    assert metal.MTLCreateSystemDefaultDevice() is None and metal.MTLCopyAllDevices().count() == 0


# A program with all of PyObjC's customs: its own imports, NSData, key-value coding, a subclass, errors.
SCRIPT = """
import struct
import objc
from Foundation import NSLog, NSMutableData, NSNumber
from MLCompute import *

class Doubler(MLCGraph):
    def init(self):
        self = objc.super(Doubler, self).init()
        if self is None:
            return None
        self.source = MLCTensor.tensorWithShape_dataType_([2, 2], MLCDataTypeFloat32)
        two = MLCTensor.tensorWithShape_fillWithData_dataType_([2, 2], NSNumber.numberWithInt_(2), MLCDataTypeFloat32)
        times = MLCArithmeticLayer.layerWithOperation_(MLCArithmeticOperationMultiply)
        self.result = self.nodeWithLayer_sources_(times, [self.source, two])
        return self

kind: MLCDataType = MLCDataTypeFloat32
net = Doubler.alloc().init()
assert net.layers().objectAtIndex_(0).operation() == MLCArithmeticOperationMultiply
graph = MLCInferenceGraph.graphWithGraphObjects_([net])
assert graph.addInputs_({"x": net.source}) is objc.YES
assert graph.compileWithOptions_device_(MLCGraphCompilationOptionsNone, objc.nil) is objc.NO
assert graph.compileWithOptions_device_(MLCGraphCompilationOptionsNone, MLCDevice.cpuDevice())
memory = NSMutableData.dataWithLength_(16)
struct.pack_into("4f", memory, 0, 1, 2, 3, 4)
given = MLCTensorData.dataWithBytesNoCopy_length_(memory, memory.length())

def done(result, error, seconds):
    NSLog("%@", error)
    print(struct.unpack("4f", result.data()), result.valueForKeyPath_("descriptor.shape.@count"))

with objc.autorelease_pool():
    graph.executeWithInputsData_batchSize_options_completionHandler_({"x": given}, 2, MLCExecutionOptionsSynchronous, done)

def failed(result, error, seconds):
    print(error.domain(), error.code(), error.userInfo().objectForKey_("NSLocalizedDescription") == error.localizedDescription())

assert not graph.executeWithInputsData_batchSize_options_completionHandler_({"x": given}, 9, 2, failed)
"""


def test_a_script_with_all_of_pyobjcs_customs_runs():
    code = f"import mlc_torch.objc; mlc_torch.objc.install()\n{SCRIPT}"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout == "(2.0, 4.0, 6.0, 8.0) 2\nmlc_torch 1 True\n" and "None\n" in found.stderr
