"""The shape and element type of a tensor, as data."""

from __future__ import annotations

import math

from mlc_torch.descriptors.base import Descriptor, positive
from mlc_torch.enums import MLCDataType
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop, static_prop
from mlc_torch.tensor.data import TORCH_TYPES

ELEMENT_BYTES = {data_type: torch_type.itemsize for data_type, torch_type in TORCH_TYPES.items()}
MAX_DIMENSIONS = 4  # measured: five or more dimensions are refused (evidence.md A.1)
_FLOAT = MLCDataType.float32


class MLCTensorDescriptor(Descriptor):
    """The shape and element type of a tensor. The outermost dimension comes first: [batch, channels, height, width]."""

    dataType = prop("MLCDataType", "The type of an element.")
    sortedSequences = prop("Bool", "Whether the sequence lengths are in descending order.")
    _bare_fields = {"shape": (), "dataType": 0, "sequenceLengths": None}

    @static_prop("Int")
    def maxTensorDimensions(cls):
        """The most dimensions that a tensor can have: 4."""
        return MAX_DIMENSIONS

    @prop("[Int]")
    def shape(self):
        """The size of each dimension."""
        return list(self._shape)

    @prop("Int")
    def dimensionCount(self):
        """How many dimensions there are."""
        return len(self._shape)

    @prop("Int")
    def tensorAllocationSizeInBytes(self):
        """How many bytes the elements take."""
        return self._nbytes

    @prop("[Int]")
    def stride(self):
        """The distance in bytes between neighbours of each dimension."""
        strides, step = [], ELEMENT_BYTES.get(self._dataType, 0)
        for size in reversed(self._shape):
            strides.append(step)
            step *= size
        return strides[::-1]

    @prop("[Int]?")
    def sequenceLengths(self):
        """The length of each sequence, or ``None`` for a tensor without sequences."""
        return None if self._sequenceLengths is None else list(self._sequenceLengths)

    @prop("[Int]?")
    def batchSizePerSequenceStep(self):
        """How many sequences are still running at each step (evidence.md C4)."""
        if self._sequenceLengths is None:
            return None
        steps: list[int] = []
        shortest_first = sorted(self._sequenceLengths)
        for ended, length in enumerate(shortest_first):
            steps += [len(shortest_first) - ended] * (length - len(steps))
        return steps

    @property
    def _nbytes(self) -> int:
        return math.prod(self._shape) * ELEMENT_BYTES.get(self._dataType, 0) if self._shape else 0

    @property
    def _sample_bytes(self) -> int:
        """Bytes of one entry of the first dimension: what one sample of a batch takes."""
        return self._nbytes // self._shape[0]

    @declare("init?(shape: [Int])", "descriptorWithShape:")  # of the first SDKs
    @declare("init?(shape: [Int], dataType: MLCDataType)", "descriptorWithShape:dataType:")
    def _create(cls, shape, dataType=_FLOAT):
        """By shape, with float32 elements unless told otherwise."""
        shape = tuple(shape)
        if not shape:
            refuse("shape is empty; a tensor has at least one dimension")
        if len(shape) > MAX_DIMENSIONS:
            refuse(f"shape has {len(shape)} dimensions, at most {MAX_DIMENSIONS} are possible: {list(shape)}")
        if min(shape) < 1:
            refuse(f"every dimension of shape must be at least 1, got {list(shape)}")
        if math.prod(shape) * ELEMENT_BYTES[dataType] >= 2**63:
            refuse(f"shape {list(shape)} has more elements than memory has addresses")
        return cls._make(shape=shape, dataType=dataType, sequenceLengths=None, sortedSequences=False)

    @declare(
        "init?(shape: [Int], sequenceLengths: [Int], sortedSequences: Bool, dataType: MLCDataType)",
        "descriptorWithShape:sequenceLengths:sortedSequences:dataType:",
    )
    def _sequence(cls, shape, sequenceLengths, sortedSequences, dataType):
        """A batch of sequences of different lengths, in the shape [batch, longest, features]."""
        if len(shape) != 3:
            refuse(f"a sequence tensor has the shape [batch, longest sequence, features], got {shape}")
        made = cls._create(shape, dataType)
        if not sequenceLengths or min(sequenceLengths) < 1:
            refuse(f"sequenceLengths must be whole numbers from 1 on, got {sequenceLengths}")
        if max(sequenceLengths) > shape[1]:
            refuse(f"sequenceLengths reach {max(sequenceLengths)}, the shape {shape} holds {shape[1]} steps")
        if sortedSequences and sequenceLengths != sorted(sequenceLengths, reverse=True):
            refuse(f"sortedSequences promises descending lengths, got {sequenceLengths}")
        made.__dict__.update(_sequenceLengths=tuple(sequenceLengths), _sortedSequences=sortedSequences)
        return made

    @declare(
        "init?(width: Int, height: Int, featureChannelCount featureChannels: Int, batchSize: Int)",
        "descriptorWithWidth:height:featureChannelCount:batchSize:",
    )
    @declare(
        "init?(width: Int, height: Int, featureChannelCount featureChannels: Int, batchSize: Int, dataType: MLCDataType)",
        "descriptorWithWidth:height:featureChannelCount:batchSize:dataType:",
    )
    def _image(cls, width, height, featureChannels, batchSize, dataType=_FLOAT):
        """A batch of images: [batchSize, featureChannelCount, height, width]."""
        return cls._create((batchSize, featureChannels, height, width), dataType)

    @declare(
        "init?(convolutionWeightsWithWidth width: Int, height: Int, inputFeatureChannelCount: Int, "
        "outputFeatureChannelCount: Int, dataType: MLCDataType)",
        "convolutionWeightsDescriptorWithWidth:height:inputFeatureChannelCount:outputFeatureChannelCount:dataType:",
    )
    @declare(
        "init?(convolutionWeightsWithInputFeatureChannelCount inputFeatureChannelCount: Int, "
        "outputFeatureChannelCount: Int, dataType: MLCDataType)",
        "convolutionWeightsDescriptorWithInputFeatureChannelCount:outputFeatureChannelCount:dataType:",
    )
    def _weights(cls, inputFeatureChannelCount, outputFeatureChannelCount, dataType, width=1, height=1):
        """Weights of a convolution or, without width and height, of a fully connected layer."""
        positive("inputFeatureChannelCount", inputFeatureChannelCount)
        positive("outputFeatureChannelCount", outputFeatureChannelCount)
        return cls._create((1, inputFeatureChannelCount * outputFeatureChannelCount, height, width), dataType)

    @declare(
        "init?(convolutionBiasesWithFeatureChannelCount featureChannelCount: Int, dataType: MLCDataType)",
        "convolutionBiasesDescriptorWithFeatureChannelCount:dataType:",
    )
    def _biases(cls, featureChannelCount, dataType):
        """Biases of a convolution or a fully connected layer: one number per channel."""
        return cls._create((1, featureChannelCount, 1, 1), dataType)

    def _shown(self):
        return ["shape", "dataType", *(["sequenceLengths"] if self._sequenceLengths else [])]
