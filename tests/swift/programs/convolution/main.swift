// A small convolutional classifier: convolution, pooling, reshape, dense, softmax loss.
import MLCompute

let image = MLCTensor(shape: [4, 2, 6, 6]), label = MLCTensor(shape: [4, 3])
let graph = MLCGraph()
let kernel = filled([1, 2 * 5, 3, 3], 1), bias = filled([1, 5, 1, 1], 2)
let convolution = MLCConvolutionLayer(weights: kernel, biases: bias, descriptor: MLCConvolutionDescriptor(kernelSizes: (height: 3, width: 3), inputFeatureChannelCount: 2, outputFeatureChannelCount: 5, strides: (y: 1, x: 1), paddingPolicy: .sized(y: 1, x: 0)))!
let pooling = MLCPoolingLayer(descriptor: MLCPoolingDescriptor(type: .average(countIncludesPadding: true), kernelSizes: (2, 2), strides: (y: 2, x: 2), paddingPolicy: .valid))
let wide = graph.node(with: convolution, source: image)!
print("convolution", wide.descriptor.shape, convolution.descriptor.paddingPolicy == .sized(y: 1, x: 0))
let small = graph.node(with: pooling, source: graph.node(with: MLCActivationLayer.tanh, source: wide)!)!
print("pooling", small.descriptor.shape)
let flat = graph.reshape(shape: [4, 5 * 3 * 2], source: small)!
let output = graph.node(with: dense(30, 3, 3), source: flat)!
let training = MLCTrainingGraph(graphObjects: [graph], lossLayer: MLCLossLayer(descriptor: MLCLossDescriptor(type: .softmaxCrossEntropy, reductionType: .mean)), optimizer: MLCSGDOptimizer(descriptor: settings(0.05), momentumScale: 0.9, usesNesterovMomentum: true))
training.addInputs(["image": image], lossLabels: ["label": label])
training.compile(options: [.disableLayerFusion], device: .cpu())
let images = memory(spread(4 * 72, 5)), labels = memory([1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0])
for _ in 0..<5 {
    training.execute(inputsData: ["image": images], lossLabelsData: ["label": labels], lossLabelWeightsData: nil, batchSize: 4, options: [.synchronous]) { loss, _, _ in show("loss", loss!.data!.floats) }
}
training.synchronizeUpdates()
show("kernel", kernel.data!.floats)
show("bias", bias.data!.floats)
