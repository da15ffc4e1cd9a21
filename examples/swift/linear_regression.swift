// The line through four points, as one writes it on a Mac:
//     mlc-torch swift run examples/swift/linear_regression.swift
import MLCompute

let x = MLCTensor(shape: [4, 1]), y = MLCTensor(shape: [4, 1])
let weight = MLCTensor(shape: [1, 1, 1, 1], fillWithData: 0, dataType: .float32)
let bias = MLCTensor(shape: [1, 1, 1, 1], fillWithData: 0, dataType: .float32)

let graph = MLCGraph()
let dense = MLCFullyConnectedLayer(
    weights: weight, biases: bias,
    descriptor: MLCConvolutionDescriptor(kernelSizes: (1, 1), inputFeatureChannelCount: 1, outputFeatureChannelCount: 1))!
graph.node(with: dense, source: x)

let training = MLCTrainingGraph(
    graphObjects: [graph],
    lossLayer: MLCLossLayer.meanSquaredError(reductionType: .mean, weight: 1),
    optimizer: MLCAdamOptimizer(
        descriptor: MLCOptimizerDescriptor(learningRate: 0.3, gradientRescale: 1, regularizationType: .none, regularizationScale: 0)))
training.addInputs(["x": x], lossLabels: ["y": y])
training.compile(options: [], device: .cpu())

func data(_ values: [Float]) -> MLCTensorData {
    let memory = UnsafeMutablePointer<Float>.allocate(capacity: values.count)
    memory.initialize(from: values, count: values.count)
    return MLCTensorData(bytesNoCopy: memory, length: values.count * MemoryLayout<Float>.stride) { bytes, _ in bytes.deallocate() }
}

func values(_ tensor: MLCTensor) -> [Float] { tensor.data!.withUnsafeBytes { Array($0.bindMemory(to: Float.self)) } }

let points = data([0, 1, 2, 3]), heights = data([5, 7, 9, 11])
for step in 0...500 {
    training.execute(
        inputsData: ["x": points], lossLabelsData: ["y": heights], lossLabelWeightsData: nil, batchSize: 4, options: [.synchronous]
    ) { loss, error, _ in
        if step % 100 == 0 { print("step \(step): loss", String(format: "%.4f", values(loss!)[0])) }
    }
}
training.synchronizeUpdates()
print(String(format: "weight %.4f, bias %.4f", values(weight)[0], values(bias)[0]))

let inference = MLCInferenceGraph(graphObjects: [graph])
inference.addInputs(["x": x])
inference.compile(options: [], device: .cpu())
inference.execute(inputsData: ["x": data([4, 5, 6, 7])], batchSize: 4, options: [.synchronous]) { result, error, _ in
    print("4, 5, 6, 7:", values(result!).map { String(format: "%.3f", $0) }.joined(separator: ", "))
}
