"""Foundation's conventions in the PyObjC view: data, arrays, dictionaries, errors, key-value coding."""

from __future__ import annotations

import numpy as np
import pytest

import mlc_torch
import mlc_torch.objc as MLCompute
from mlc_torch.objc import wrap
from mlc_torch.objc.foundation import NSArray, NSData, NSDictionary, NSError, NSMutableArray, NSMutableData
from mlc_torch.objc.foundation import NSMutableDictionary as MutableDictionary
from mlc_torch.objc.stand_ins import foundation_names


@pytest.fixture
def tensor():
    return MLCompute.MLCTensor.tensorWithShape_fillWithData_dataType_([2, 3], 7, MLCompute.MLCDataTypeFloat32)


# Data


def test_data_is_a_buffer_with_foundations_words(tensor):
    data = tensor.data()
    assert isinstance(data, NSData) and data.length() == len(data) == 24
    assert np.frombuffer(data, np.float32).tolist() == [7] * 6
    assert np.frombuffer(data.bytes(), np.float32).tolist() == [7] * 6 == memoryview(data).cast("f").tolist()
    assert bytes(data) == np.full(6, 7, np.float32).tobytes() == data and data != b"" and data != 3
    assert data and not NSData.over(b"") and repr(data) == "<NSData of 24 bytes>" == data.description()
    assert hash(data) == hash(tensor.data())


def test_data_is_the_tensors_memory_and_read_only():
    values = np.arange(4, dtype=np.float32)
    held = MLCompute.MLCTensorData.dataWithBytesNoCopy_length_(values, 16)
    tensor = MLCompute.MLCTensor.tensorWithShape_data_dataType_([4], held, MLCompute.MLCDataTypeFloat32)
    data = tensor.data()
    values[0] = 9
    assert np.frombuffer(data, np.float32)[0] == 9
    with pytest.raises(ValueError, match="read-only"):
        data[0] = 1
    with pytest.raises(TypeError):
        data.bytes()[0] = 1


def test_data_serves_wherever_memory_is_asked_for(tensor):
    again = MLCompute.MLCTensorData.dataWithImmutableBytesNoCopy_length_(tensor.data(), 24)
    made = MLCompute.MLCTensor.tensorWithShape_data_dataType_([2, 3], again, MLCompute.MLCDataTypeFloat32)
    assert made.numpy().tolist() == tensor.numpy().tolist()
    boxes = NSData.dataWithBytes_length_(np.ones(4, np.float32), 16)
    yolo = MLCompute.MLCYOLOLossDescriptor.descriptorWithAnchorBoxes_anchorBoxCount_(boxes, 2)
    assert isinstance(yolo.anchorBoxes(), NSData) and yolo.anchorBoxes().isEqualToData_(boxes)


def test_gradients_come_as_data():
    """y = w x with w = 3, x = 2 and the label 1: the slope of (y - 1)² by w is 2 (6 - 1) 2."""
    m = MLCompute
    x, label = m.MLCTensor.tensorWithShape_([1, 1]), m.MLCTensor.tensorWithShape_([1, 1])
    weights = m.MLCTensor.tensorWithShape_fillWithData_dataType_([1, 1, 1, 1], 3, m.MLCDataTypeFloat32)
    channels = m.MLCConvolutionDescriptor(
        kernelWidth=1, kernelHeight=1, inputFeatureChannelCount=1, outputFeatureChannelCount=1
    )
    dense = m.MLCFullyConnectedLayer.layerWithWeights_biases_descriptor_(weights, None, channels)
    graph = m.MLCGraph.graph()
    graph.nodeWithLayer_source_(dense, x)
    loss = m.MLCLossLayer.meanSquaredErrorLossWithReductionType_weight_(m.MLCReductionTypeMean, 1.0)
    training = m.MLCTrainingGraph.graphWithGraphObjects_lossLayer_optimizer_([graph], loss, None)
    assert training.addInputs_lossLabels_({"x": x}, {"y": label})
    assert training.compileWithOptions_device_(0, m.MLCDevice.cpuDevice())
    given = {name: NSMutableData.dataWithLength_(4) for name in "xy"}
    for name, value in (("x", 2), ("y", 1)):
        given[name].mutableBytes().cast("f")[0] = value
    held = {name: m.MLCTensorData.dataWithBytesNoCopy_length_(memory, 4) for name, memory in given.items()}
    bound = {"x": x, "y": label}
    assert training.bindAndWriteData_forInputs_toDevice_synchronous_(held, bound, m.MLCDevice.cpuDevice(), True)
    assert training.executeForwardWithBatchSize_options_completionHandler_(1, 2, None)
    assert training.executeGradientWithBatchSize_options_completionHandler_(1, 2, None)
    gradient = training.gradientDataForParameter_layer_(weights, dense)
    assert isinstance(gradient, NSData) and gradient.bytes().cast("f").tolist() == [20]


def test_pieces_copies_and_files_of_data(tmp_path):
    data = NSData.dataWithBytes_length_(b"abcdef", 4)
    assert data == b"abcd" and data.subdataWithRange_((1, 2)) == b"bc" and NSData.dataWithData_(data) == data
    assert data.getBytes_length_(None, 2) == b"ab"
    assert NSData.alloc().initWithBytes_length_(b"abcdef", 4) == data and NSData.new().length() == 0
    target = bytearray(4)
    data.getBytes_length_(target, 3)
    assert target == b"abc\0"
    with pytest.raises(IndexError, match="not within 4 bytes"):
        data.subdataWithRange_((3, 2))
    path = str(tmp_path / "d")
    assert data.writeToFile_atomically_(path, True) and NSData.dataWithContentsOfFile_(path) == data
    assert NSData.dataWithContentsOfFile_(path + "x") is None
    assert data.writeToFile_atomically_(str(tmp_path), True) is False


@pytest.mark.parametrize("length", [-1, 4])
def test_data_has_no_more_bytes_than_were_given(length):
    for make in (NSData.dataWithBytes_length_, NSData.dataWithBytesNoCopy_length_, NSData.new().initWithBytes_length_):
        with pytest.raises(ValueError, match=f"length {length} is not within the 3 bytes"):
            make(b"abc", length)
    assert NSData.dataWithData_(NSData.new()) == NSData.dataWithBytes_length_(b"abc", 0) == b""


def test_a_piece_of_data_is_a_copy():
    data = NSMutableData.dataWithBytes_length_(b"abcdef", 6)
    piece = data.subdataWithRange_((1, 2))
    data.mutableBytes()[1] = ord("X")
    assert data == b"aXcdef" and piece == b"bc" and data.subdataWithRange_((2, 0)) == b""
    with pytest.raises(ValueError, match="read-only"):
        piece[0] = 0


def test_data_is_written_whole_where_that_is_asked_for(tmp_path):
    """Who has opened the old file reads on in it; without that, the new bytes stand in its place."""
    path = tmp_path / "d"
    for atomically, there in ((True, b"old"), (False, b"new")):
        path.write_bytes(b"old")
        with path.open("rb", buffering=0) as reader:
            assert NSData.dataWithBytes_length_(b"new", 3).writeToFile_atomically_(str(path), atomically)
            assert reader.read() == there and path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["d"]


def test_data_that_can_be_written():
    data = NSMutableData.dataWithLength_(8)
    data.mutableBytes().cast("f")[1] = 3
    held = MLCompute.MLCTensorData.dataWithBytesNoCopy_length_(data, data.length())
    tensor = MLCompute.MLCTensor.tensorWithShape_data_dataType_([2], held, MLCompute.MLCDataTypeFloat32)
    assert tensor.numpy().tolist() == [0, 3]
    same = NSMutableData.dataWithBytesNoCopy_length_(bytearray(b"ab"), 1)
    same[0] = 65
    assert same == b"A"


# Arrays and dictionaries


def test_arrays_stay_lists(tensor):
    shape = tensor.descriptor().shape()
    assert isinstance(shape, list) and shape == [2, 3] and isinstance(shape, NSArray)
    assert shape.count() == 2 and shape.count(3) == 1
    assert (shape.objectAtIndex_(1), shape.firstObject(), shape.lastObject()) == (3, 2, 3)
    assert shape.containsObject_(2) and shape.indexOfObject_(3) == 1 and shape.indexOfObject_(9) > 10**9
    assert shape.isEqualToArray_([2, 3]) and list(shape.objectEnumerator()) == [2, 3] and "2, 3" in shape.description()
    with pytest.raises(IndexError, match="beyond the bounds of an array of 2"):
        shape.objectAtIndex_(2)
    with pytest.raises(IndexError):
        shape.objectAtIndex_(-1)
    assert NSArray.array().firstObject() is None is NSArray.array().lastObject()
    assert MLCompute.MLCTensor.tensorWithShape_(shape).descriptor().shape() == shape


def test_arrays_are_made_and_changed():
    assert NSArray.arrayWithArray_((1, 2)) == [1, 2] and NSArray.arrayWithObject_(3) == [3]
    assert NSArray.arrayWithObjects_(1, 2, None) == [1, 2] == NSArray.arrayWithObjects_(1, 2)
    assert NSArray.alloc().initWithArray_([1]) == [1] and NSArray.new() == []
    changed = NSMutableArray.alloc().init()
    changed.addObject_(4)
    changed.addObject_(5)
    changed.removeObjectAtIndex_(0)
    assert changed == [5]
    for index in (-1, 1):
        with pytest.raises(IndexError, match=f"index {index} is beyond the bounds of an array of 1"):
            changed.removeObjectAtIndex_(index)
    assert changed == [5]


def test_arrays_change_in_every_way():
    changed = NSMutableArray.arrayWithCapacity_(8)
    changed.addObjectsFromArray_([1, 2])
    changed.insertObject_atIndex_(0, 0)
    changed.insertObject_atIndex_(3, 3)
    changed.replaceObjectAtIndex_withObject_(1, "one")
    assert changed == [0, "one", 2, 3]
    changed.removeLastObject()
    assert changed == [0, "one", 2]
    for mistake in (
        lambda: changed.insertObject_atIndex_(9, 4),
        lambda: changed.replaceObjectAtIndex_withObject_(3, 9),
        NSMutableArray.alloc().initWithCapacity_(1).removeLastObject,
    ):
        with pytest.raises(IndexError, match="beyond the bounds of an array"):
            mistake()
    changed.removeAllObjects()
    assert changed == []


def test_dictionaries_stay_dicts():
    found = wrap({"a": [1], "b": mlc_torch.MLCDataType.int8})
    assert isinstance(found, dict) and found == {"a": [1], "b": 8} and isinstance(found["a"], NSArray)
    assert found.count() == 2 and found.objectForKey_("b") == 8 and found.objectForKey_("c") is None
    assert found.allKeys() == ["a", "b"] and found.allValues() == [[1], 8] and "'b': 8" in found.description()
    assert found.valueForKeyPath_("a.@count") == 1 and found.isEqualToDictionary_(dict(found))


def test_dictionaries_are_made_and_changed():
    assert NSDictionary.dictionaryWithObjects_forKeys_([1, 2], ["a", "b"]) == {"a": 1, "b": 2}
    assert (
        NSDictionary.dictionaryWithObject_forKey_(1, "a")
        == {"a": 1}
        == NSDictionary.dictionaryWithDictionary_({"a": 1})
    )
    assert NSDictionary.alloc().initWithDictionary_({"a": 1}) == {"a": 1} and NSDictionary.new() == {}
    changed = MutableDictionary.alloc().init()
    changed.setObject_forKey_(1, "a")
    changed.setValue_forKey_(2, "b")
    changed.removeObjectForKey_("a")
    changed.removeObjectForKey_("never there")
    assert changed == {"b": 2}


def test_dictionaries_change_in_every_way():
    changed = MutableDictionary.dictionaryWithCapacity_(8)
    changed.addEntriesFromDictionary_({"a": 1, "b": 2})
    assert changed == {"a": 1, "b": 2}
    changed.removeAllObjects()
    assert changed == {} == MutableDictionary.alloc().initWithCapacity_(1)


def test_empty_data_is_made_by_its_name_and_arrays_keep_their_memory():
    for made in (NSData.data(), NSMutableData.data(), NSMutableData.dataWithCapacity_(8)):
        assert made.length() == 0 and isinstance(made, NSData)
    assert bytes(NSData.dataWithBytes_length_(b"abc", 3).data) == b"abc"


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (NSArray, "arrayWithContentsOfFile_"),
        (NSMutableArray(), "sortUsingSelector_"),
        (NSData.data(), "base64EncodedStringWithOptions_"),
        (NSDictionary, "dictionaryWithContentsOfFile_"),
        (foundation_names()["NSNumber"], "alloc"),
        (foundation_names()["NSString"], "stringWithContentsOfFile_"),
    ],
)
def test_what_a_stand_in_lacks_it_says(owner, name):
    who = owner.__name__ if isinstance(owner, type) else type(owner).__name__
    with pytest.raises(AttributeError, match=f"^{who} has no '{name}' here: it is a stand-in for Foundation's"):
        getattr(owner, name)


def test_text_is_formatted_as_in_a_log():
    assert foundation_names()["NSString"].stringWithFormat_("%d of %@, %.1f%%", 3, [4], 2.25) == "3 of [4], 2.2%"


def test_arrays_and_dictionaries_go_into_a_graph():
    x = MLCompute.MLCTensor.tensorWithShape_([2])
    graph = MLCompute.MLCGraph.graph()
    graph.nodeWithLayer_source_(MLCompute.MLCActivationLayer.reluLayer(), x)
    inference = MLCompute.MLCInferenceGraph.graphWithGraphObjects_(NSArray([graph]))
    assert inference.addInputs_(NSDictionary(x=x))
    assert inference.layers() == graph.layers() and inference.layers().count() == 1


# Errors


def test_errors_answer_as_foundations():
    seen = []
    x = MLCompute.MLCTensor.tensorWithShape_([2])
    graph = MLCompute.MLCGraph.graph()
    graph.nodeWithLayer_source_(MLCompute.MLCActivationLayer.reluLayer(), x)
    inference = MLCompute.MLCInferenceGraph.graphWithGraphObjects_([graph])
    assert not inference.executeWithInputsData_batchSize_options_completionHandler_({}, 0, 2, lambda *a: seen.append(a))
    [(result, error, seconds)] = seen
    assert result is None and seconds == 0 and isinstance(error, NSError)
    why = str(mlc_torch.last_refusal())
    assert error.localizedDescription() == why == str(error) and error.domain() == "mlc_torch"
    assert isinstance(error.code(), int) and error.localizedFailureReason() in why
    info = error.userInfo()
    assert info.objectForKey_("NSLocalizedDescription") == why
    assert info["NSLocalizedFailureReason"] == mlc_torch.last_refusal().reason
    assert why in error.description() and why in repr(error)
    assert error == wrap(mlc_torch.last_refusal()) and len({error, wrap(mlc_torch.last_refusal())}) == 1
    assert error.valueForKey_("domain") == "mlc_torch"


# Key-value coding


def test_values_for_keys(tensor):
    assert tensor.valueForKey_("label") == tensor.label()
    tensor.setValue_forKey_("weights", "label")
    assert tensor.label() == "weights"
    assert tensor.valueForKeyPath_("descriptor.shape") == [2, 3]
    assert tensor.valueForKeyPath_("descriptor.shape.@sum") == 5
    assert tensor.valueForKeyPath_("data.length") == 24
    assert tensor.valueForKeyPath_("device.type") is None  # nil answers nil
    parameter = MLCompute.MLCTensorParameter.parameterWithTensor_(tensor)
    assert parameter.valueForKey_("updatable") is True is parameter.valueForKey_("isUpdatable")
    parameter.setValue_forKeyPath_("bias", "tensor.label")
    assert tensor.label() == "bias"


def test_values_of_all_objects_in_an_array():
    graph = MLCompute.MLCGraph.graph()
    x = MLCompute.MLCTensor.tensorWithShape_([2])
    for name in ("first", "second"):
        layer = MLCompute.MLCActivationLayer.reluLayer()
        layer.setLabel_(name)
        x = graph.nodeWithLayer_source_(layer, x)
    assert graph.valueForKeyPath_("layers.label") == ["first", "second"] == graph.layers().valueForKey_("label")
    assert graph.valueForKeyPath_("layers.@count") == 2
    numbers = NSArray([3, 1, 2])
    assert [numbers.valueForKeyPath_(f"@{name}") for name in ("max", "min", "avg", "sum")] == [3, 1, 2, 6]
    assert NSArray().valueForKeyPath_("@max") is None and NSArray().valueForKeyPath_("@avg") == 0


def test_keys_that_are_not_there(tensor):
    with pytest.raises(KeyError, match="MLCTensor has no value for the key 'lable'"):
        tensor.valueForKey_("lable")
    with pytest.raises(KeyError, match="MLCTensor has no value to be set for the key 'tensorID'"):
        tensor.setValue_forKey_(3, "tensorID")
    with pytest.raises(KeyError, match="3 has no value for the key"):
        NSArray([3]).valueForKey_("label")
    with pytest.raises(KeyError, match="@most is none of"):
        NSArray([3]).valueForKeyPath_("@most")
    with pytest.raises(KeyError):
        tensor.valueForKey_("_target")


@pytest.mark.parametrize("key", [None, 3, b"label", ["label"]])
def test_a_key_is_a_string(key):
    tensor = MLCompute.MLCTensor.tensorWithShape_([1, 2])
    array = NSArray([tensor])
    for owner in (tensor, array):
        with pytest.raises(TypeError, match=r"MLCTensor: a key is a string, got .* \((NoneType|int|bytes|list)\)"):
            owner.valueForKey_(key)
        with pytest.raises(TypeError, match="a key path is a string, got"):
            owner.valueForKeyPath_(key)
        with pytest.raises(TypeError, match="a key is a string, got"):
            owner.setValue_forKey_("a", key)
        with pytest.raises(TypeError, match="a key path is a string, got"):
            owner.setValue_forKeyPath_("a", key)
    assert tensor.valueForKeyPath_("descriptor.shape") == [1, 2]
