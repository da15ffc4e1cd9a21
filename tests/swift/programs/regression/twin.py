from helpers import *

x, y = MLCTensor(shape=[4, 1]), MLCTensor(shape=[4, 1])
weight = MLCTensor(shape=[1, 1, 1, 1], fillWithData=0, dataType=MLCDataType.float32)
bias = MLCTensor(shape=[1, 1, 1, 1], fillWithData=0, dataType=MLCDataType.float32)
graph = MLCGraph()
plain = MLCConvolutionDescriptor(kernelSizes=(1, 1), inputFeatureChannelCount=1, outputFeatureChannelCount=1)
graph.node(MLCFullyConnectedLayer(weights=weight, biases=bias, descriptor=plain), source=x)
training = MLCTrainingGraph(
    graphObjects=[graph],
    lossLayer=MLCLossLayer.meanSquaredError(reductionType=MLCReductionType.mean, weight=1),
    optimizer=MLCAdamOptimizer(descriptor=settings(0.3)),
)
training.addInputs({"x": x}, lossLabels={"y": y})
training.compile(options=[], device=MLCDevice.cpu())
xs, ys = memory(np.array([0, 1, 2, 3], np.float32)), memory(np.array([5, 7, 9, 11], np.float32))
for step in range(101):

    def shown(loss, error, seconds, step=step):
        if step % 20 == 0:
            show(f"loss {step} {str(error is None).lower()}", floats(loss.data))

    training.execute(
        inputsData={"x": xs},
        lossLabelsData={"y": ys},
        lossLabelWeightsData=None,
        batchSize=4,
        options=[MLCExecutionOptions.synchronous],
        completionHandler=shown,
    )
training.synchronizeUpdates()
show("weight", floats(weight.data))
show("bias", floats(bias.data))
