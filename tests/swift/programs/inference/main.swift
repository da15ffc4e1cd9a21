// Training, then an inference graph over the same graph, with a smaller batch and the program's own output buffer.
import MLCompute

let x = MLCTensor(shape: [8, 3, 1, 1]), y = MLCTensor(shape: [8, 2])
let graph = MLCGraph()
var tensor = graph.node(with: dense(3, 6, 1), source: x)!
tensor = graph.node(with: MLCActivationLayer(descriptor: MLCActivationDescriptor(type: .elu, a: 0.5)!), source: tensor)!
tensor = graph.node(with: dense(6, 2, 3), source: tensor)!
let training = MLCTrainingGraph(graphObjects: [graph], lossLayer: MLCLossLayer(descriptor: MLCLossDescriptor(type: .softmaxCrossEntropy, reductionType: .mean, weight: 2)), optimizer: MLCAdamWOptimizer(descriptor: settings(0.02)))
training.addInputs(["x": x], lossLabels: ["y": y])
print(training.compile(device: MLCDevice()), training.layers.map { String(describing: type(of: $0)) })
let inputs = spread(24, 4), labels = (0..<16).map { Float(($0 / 2 + $0) % 2) }
let xs = memory(inputs), ys = memory(labels)
for _ in 0..<10 { training.execute(inputsData: ["x": xs], lossLabelsData: ["y": ys], lossLabelWeightsData: nil, batchSize: 8, options: [.synchronous]) }
let softmax = graph.node(with: MLCSoftmaxLayer(operation: .softmax), source: tensor)!
let inference = MLCInferenceGraph(graphObjects: [graph])
inference.addInputs(["x": x])
inference.addOutputs(["softmax": softmax])
print(inference.compile(options: [], device: .cpu()))
var answer = [Float](repeating: -1, count: 16)
answer.withUnsafeMutableBytes { buffer in
    let output = MLCTensorData(bytesNoCopy: buffer.baseAddress!, length: 64)
    print(inference.execute(inputsData: ["x": xs], outputsData: ["softmax": output], batchSize: 5, options: [.synchronous]) { result, error, _ in
        show("result \(error == nil)", result!.data!.floats)
    })
}
show("answer", answer)
