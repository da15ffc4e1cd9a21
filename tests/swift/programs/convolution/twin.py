from helpers import *

image, label = MLCTensor(shape=[4, 2, 6, 6]), MLCTensor(shape=[4, 3])
graph = MLCGraph()
kernel, bias = filled([1, 2 * 5, 3, 3], 1), filled([1, 5, 1, 1], 2)
convolution = MLCConvolutionLayer(
    weights=kernel,
    biases=bias,
    descriptor=MLCConvolutionDescriptor(
        kernelSizes=(3, 3),
        inputFeatureChannelCount=2,
        outputFeatureChannelCount=5,
        strides=(1, 1),
        paddingPolicy=MLCPaddingPolicy.sized(y=1, x=0),
    ),
)
pooling = MLCPoolingLayer(
    descriptor=MLCPoolingDescriptor(
        type=MLCPoolingType.average(countIncludesPadding=True),
        kernelSizes=(2, 2),
        strides=(2, 2),
        paddingPolicy=MLCPaddingPolicy.valid,
    )
)
wide = graph.node(convolution, source=image)
print("convolution", wide.descriptor.shape, "true")
small = graph.node(pooling, source=graph.node(MLCActivationLayer.tanh, source=wide))
print("pooling", small.descriptor.shape)
flat = graph.reshape(shape=[4, 5 * 3 * 2], source=small)
output = graph.node(dense(30, 3, 3), source=flat)
training = MLCTrainingGraph(
    graphObjects=[graph],
    lossLayer=MLCLossLayer(
        descriptor=MLCLossDescriptor(type=MLCLossType.softmaxCrossEntropy, reductionType=MLCReductionType.mean)
    ),
    optimizer=MLCSGDOptimizer(descriptor=settings(0.05), momentumScale=0.9, usesNesterovMomentum=True),
)
training.addInputs({"image": image}, lossLabels={"label": label})
training.compile(options=[MLCGraphCompilationOptions.disableLayerFusion], device=MLCDevice.cpu())
images, labels = memory(spread(4 * 72, 5)), memory(np.array([1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0], np.float32))
for _ in range(5):
    training.execute(
        inputsData={"image": images},
        lossLabelsData={"label": labels},
        lossLabelWeightsData=None,
        batchSize=4,
        options=[MLCExecutionOptions.synchronous],
        completionHandler=lambda loss, error, seconds: show("loss", floats(loss.data)),
    )
training.synchronizeUpdates()
show("kernel", floats(kernel.data))
show("bias", floats(bias.data))
