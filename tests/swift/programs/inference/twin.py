from helpers import *

S = [MLCExecutionOptions.synchronous]
x, y = MLCTensor(shape=[8, 3, 1, 1]), MLCTensor(shape=[8, 2])
graph = MLCGraph()
tensor = graph.node(dense(3, 6, 1), source=x)
elu = MLCActivationLayer(descriptor=MLCActivationDescriptor(type=MLCActivationType.elu, a=0.5))
tensor = graph.node(elu, source=tensor)
tensor = graph.node(dense(6, 2, 3), source=tensor)
loss = MLCLossDescriptor(type=MLCLossType.softmaxCrossEntropy, reductionType=MLCReductionType.mean, weight=2)
training = MLCTrainingGraph(
    graphObjects=[graph],
    lossLayer=MLCLossLayer(descriptor=loss),
    optimizer=MLCAdamWOptimizer(descriptor=settings(0.02)),
)
training.addInputs({"x": x}, lossLabels={"y": y})
names = ", ".join(f'"{type(layer).__name__}"' for layer in training.layers)
print(str(training.compile(device=MLCDevice())).lower(), f"[{names}]")
labels = np.array([(i // 2 + i) % 2 for i in range(16)], np.float32)
xs, ys = memory(spread(24, 4)), memory(labels)
for _ in range(10):
    training.execute(inputsData={"x": xs}, lossLabelsData={"y": ys}, lossLabelWeightsData=None, batchSize=8, options=S)
softmax = graph.node(MLCSoftmaxLayer(operation=MLCSoftmaxOperation.softmax), source=tensor)
inference = MLCInferenceGraph(graphObjects=[graph])
inference.addInputs({"x": x})
inference.addOutputs({"softmax": softmax})
print(str(inference.compile(options=[], device=MLCDevice.cpu())).lower())
answer = np.full(16, -1, np.float32)
done = inference.execute(
    inputsData={"x": xs},
    outputsData={"softmax": memory(answer)},
    batchSize=5,
    options=S,
    completionHandler=lambda result, error, seconds: show(f"result {str(error is None).lower()}", floats(result.data)),
)
print(str(done).lower())
show("answer", answer)
