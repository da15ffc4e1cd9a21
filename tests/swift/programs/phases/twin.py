from helpers import *

S = [MLCExecutionOptions.synchronous]
x, y = MLCTensor(shape=[3, 4]), MLCTensor(shape=[3, 2])
graph = MLCGraph()
first, second = dense(4, 5, 1), dense(5, 2, 3)
hidden = graph.node(MLCActivationLayer.sigmoid, source=graph.node(first, source=x))
graph.node(second, source=hidden)
training = MLCTrainingGraph(
    graphObjects=[graph],
    lossLayer=MLCLossLayer.huberLoss(reductionType=MLCReductionType.sum, delta=0.5, weight=1),
    optimizer=MLCRMSPropOptimizer(descriptor=settings(0.01)),
)
training.addInputs({"x": x}, lossLabels={"y": y})
user = training.allocateUserGradient(for_=hidden)
compiled = training.compile(options=[MLCGraphCompilationOptions.computeAllGradients], device=MLCDevice.cpu())
print(user.descriptor.shape, str(compiled).lower())
losses = []
for step in range(3):
    for name, tensor, values in (("x", x, spread(12, step)), ("y", y, spread(6, 50 + step))):
        training.bindAndWriteData(
            {name: memory(values)}, forInputs={name: tensor}, to=MLCDevice.cpu(), batchSize=3, synchronous=True
        )
    user.bindAndWriteData(memory(spread(15, 90 + step) / np.float32(8)), to=MLCDevice.cpu())
    forward = training.executeForward(
        batchSize=3, options=S, completionHandler=lambda loss, error, seconds: losses.extend(floats(loss.data).tolist())
    )
    print(str(forward).lower(), str(training.executeGradient(batchSize=3, options=S)).lower())
    show("first", floats(training.gradientData(forParameter=first.weights, layer=first)))
    show("second", floats(training.gradientData(forParameter=second.biases, layer=second)))
    of_input = training.gradientTensor(forInput=x)
    print(
        "input",
        "nil" if of_input is None else of_input.descriptor.shape,
        len(training.sourceGradientTensors(for_=second)),
        len(training.resultGradientTensors(for_=second)),
    )
    print(str(training.executeOptimizerUpdate(options=S)).lower())
show("losses", losses)
training.synchronizeUpdates()
show("weights", floats(first.weights.data))
