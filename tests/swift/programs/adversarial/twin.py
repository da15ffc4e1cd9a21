from helpers import *

S = [MLCExecutionOptions.synchronous]
COUNT = 8


def true(answer):
    return str(answer).lower()


def leaky():
    return MLCActivationLayer.leakyReLU(negativeSlope=0.25)


def chain(graph, source, *layers):
    for layer in layers:
        source = graph.node(layer, source=source)
    return source


def entropy():
    return MLCLossLayer(
        descriptor=MLCLossDescriptor(type=MLCLossType.sigmoidCrossEntropy, reductionType=MLCReductionType.mean)
    )


def adversary(graph, loss):
    optimizer = MLCAdamOptimizer(descriptor=settings(0.03125))
    return MLCTrainingGraph(graphObjects=[graph], lossLayer=loss, optimizer=optimizer)


def write(training, name, tensor, values):
    training.bindAndWriteData(
        {name: memory(values)}, forInputs={name: tensor}, to=MLCDevice.cpu(), batchSize=COUNT, synchronous=True
    )


judge = [dense(1, 6, 1), dense(6, 1, 3)]
seen, truth = MLCTensor(shape=[COUNT, 1]), MLCTensor(shape=[COUNT, 1])
judging = MLCGraph()
chain(judging, seen, judge[0], leaky(), judge[1])
judge_training = adversary(judging, entropy())
print(
    true(judge_training.addInputs({"seen": seen}, lossLabels={"truth": truth})),
    true(judge_training.compile(device=MLCDevice.cpu())),
)
noise, wanted = MLCTensor(shape=[COUNT, 2]), MLCTensor(shape=[COUNT, 1])
making, deceiving = MLCGraph(), MLCGraph()
made = chain(making, noise, dense(2, 4, 5), leaky(), dense(4, 1, 7))
verdict = made
for i, layer in enumerate(judge):
    copy = MLCFullyConnectedLayer(weights=layer.weights, biases=layer.biases, descriptor=layer.descriptor)
    verdict = deceiving.node(copy, sources=[verdict], disableUpdate=True)
    if i == 0:
        verdict = deceiving.node(leaky(), source=verdict)
maker_training, deceiver = adversary(making, None), adversary(deceiving, entropy())
print(
    true(maker_training.addInputs({"noise": noise}, lossLabels=None)),
    true(deceiver.addInputs({}, lossLabels={"wanted": wanted})),
)
compiled = [
    g.compile(options=[MLCGraphCompilationOptions.linkGraphs], device=MLCDevice.cpu())
    for g in (maker_training, deceiver)
]
print(true(compiled), true(maker_training.link(with_=[deceiver])))
ones, zeros = np.ones(COUNT, np.float32), np.zeros(COUNT, np.float32)
for step in range(6):
    write(maker_training, "noise", noise, spread(2 * COUNT, step))
    write(deceiver, "wanted", wanted, ones)
    maker_training.executeForward(batchSize=COUNT, options=S)
    deceiver.executeForward(
        batchSize=COUNT,
        options=S,
        completionHandler=lambda loss, error, seconds: show("deceiver", floats(loss.data)),
    )
    print(
        true(deceiver.executeGradient(batchSize=COUNT, options=S)),
        true(maker_training.executeGradient(batchSize=COUNT, options=S)),
        true(maker_training.executeOptimizerUpdate(options=S)),
    )
    real = spread(COUNT, 40 + step) / np.float32(4) + np.float32(2)
    for values, labels in ((real, ones), (floats(made.data).copy(), zeros)):
        judge_training.execute(
            inputsData={"seen": memory(values)},
            lossLabelsData={"truth": memory(labels)},
            lossLabelWeightsData=None,
            batchSize=COUNT,
            options=S,
            completionHandler=lambda loss, error, seconds: show("judge", floats(loss.data)),
        )
show("made", floats(made.data))
for training in (judge_training, maker_training):
    training.synchronizeUpdates()
show("judge's weights", np.concatenate([floats(layer.weights.data) for layer in judge]))
