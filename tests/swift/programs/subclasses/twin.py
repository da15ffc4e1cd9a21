from helpers import *

batch, widths = 2, [3, 4, 1]
graph = MLCGraph()
x = output = MLCTensor(shape=[batch, widths[0]])
for i, width in enumerate(widths[1:]):
    output = graph.node(dense(output.descriptor.shape[1], width, 3 * i), source=output)
    if i + 2 < len(widths):
        output = graph.node(MLCActivationLayer.softPlus(beta=2), source=output)
label = MLCTensor(shape=output.descriptor.shape)
training = MLCTrainingGraph(
    graphObjects=[graph],
    lossLayer=MLCLossLayer.meanAbsoluteError(reductionType=MLCReductionType.mean, weight=1),
    optimizer=MLCSGDOptimizer(descriptor=settings(0.1)),
)
training.addInputs({"x": x}, lossLabels={"y": label})
training.compile(device=MLCDevice.cpu())
print(len(graph.layers), output.descriptor.shape, "true true")
for step in range(4):
    training.execute(
        inputsData={"x": memory(spread(6, step))},
        lossLabelsData={"y": memory(spread(2, step + 9))},
        lossLabelWeightsData=None,
        batchSize=2,
        options=[MLCExecutionOptions.synchronous],
        completionHandler=lambda loss, error, seconds: show("loss", floats(loss.data)[:1]),
    )
