from helpers import *

batch, time, features, hidden = 2, 3, 2, 4
shape = MLCLSTMDescriptor(
    inputSize=features,
    hiddenSize=hidden,
    layerCount=1,
    usesBiases=True,
    batchFirst=True,
    isBidirectional=True,
    returnsSequences=True,
    dropout=0,
    resultMode=MLCLSTMResultMode.outputAndStates,
)
lstm = MLCLSTMLayer(
    descriptor=shape,
    inputWeights=[filled([1, features * hidden, 1, 1], i) for i in range(8)],
    hiddenWeights=[filled([1, hidden * hidden, 1, 1], i + 8) for i in range(8)],
    biases=[filled([1, hidden, 1, 1], i + 16) for i in range(8)],
)
x = MLCTensor(shape=[batch, time, features])
h, c = MLCTensor(shape=[1, 2, batch, hidden]), MLCTensor(shape=[1, 2, batch, hidden])
graph = MLCGraph()
output = graph.node(lstm, sources=[x, h, c])
results = graph.resultTensors(for_=lstm)
print(output.descriptor.shape, len(results), [r.descriptor.shape for r in results], "true", len(lstm.gateActivations))
inference = MLCInferenceGraph(graphObjects=[graph])
inference.addInputs({"x": x, "h": h, "c": c})
inference.addOutputs({"output": results[0], "h": results[1], "c": results[2]})
inference.compile(device=MLCDevice.cpu())
states = cells = np.zeros(2 * batch * hidden, np.float32)
for step in range(3):
    inference.execute(
        inputsData={
            "x": memory(spread(batch * time * features, 30 + step)),
            "h": memory(states.copy()),
            "c": memory(cells.copy()),
        },
        batchSize=0,
        options=[MLCExecutionOptions.synchronous],
    )
    states, cells = floats(results[1].data), floats(results[2].data)
    show("output", floats(results[0].data))
    show("states", states)
    show("cells", cells)
