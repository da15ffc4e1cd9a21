"""The sets of options that graphs are compiled and executed with."""

from __future__ import annotations

from mlc_torch.enums.kinds import MLCOptionSet


class MLCExecutionOptions(MLCOptionSet):
    """How a call of ``execute`` or of one phase runs.

    - ``skipWritingInputDataToDevice``: uses the data that was bound before; data given in the call is ignored
    - ``synchronous``: the call returns when the work is done, on a GPU too
    - ``profiling``: measures ``executionTime``, which is 0.0 otherwise
    - ``forwardForInference``: only the forward pass, in inference mode
    - ``perLayerProfiling``: names every layer in ``torch.profiler`` traces
    """

    skipWritingInputDataToDevice = 1
    synchronous = 2
    profiling = 4
    forwardForInference = 8
    perLayerProfiling = 16


class MLCGraphCompilationOptions(MLCOptionSet):
    """How a graph is compiled.

    - ``debugLayers``: keeps the results of layers whose ``isDebuggingEnabled`` is set, and runs layer by layer
    - ``disableLayerFusion``: runs layer by layer
    - ``linkGraphs``: the graph will be linked to others
    - ``computeAllGradients``: computes the gradients of the inputs too
    """

    debugLayers = 1
    disableLayerFusion = 2
    linkGraphs = 4
    computeAllGradients = 8
