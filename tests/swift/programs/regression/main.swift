// A line through four points.
import MLCompute

let x = MLCTensor(shape: [4, 1]), y = MLCTensor(shape: [4, 1])
let weight = MLCTensor(shape: [1, 1, 1, 1], fillWithData: 0, dataType: .float32)
let bias = MLCTensor(shape: [1, 1, 1, 1], fillWithData: 0, dataType: .float32)
let graph = MLCGraph()
graph.node(with: MLCFullyConnectedLayer(weights: weight, biases: bias, descriptor: .init(kernelSizes: (1, 1), inputFeatureChannelCount: 1, outputFeatureChannelCount: 1))!, source: x)
let training = MLCTrainingGraph(graphObjects: [graph], lossLayer: MLCLossLayer.meanSquaredError(reductionType: .mean, weight: 1), optimizer: MLCAdamOptimizer(descriptor: settings(0.3)))
training.addInputs(["x": x], lossLabels: ["y": y])
training.compile(options: [], device: .cpu())
let xs = memory([0, 1, 2, 3]), ys = memory([5, 7, 9, 11])
for step in 0..<101 {
    training.execute(inputsData: ["x": xs], lossLabelsData: ["y": ys], lossLabelWeightsData: nil, batchSize: 4, options: [.synchronous]) { loss, error, _ in
        if step % 20 == 0 { show("loss \(step) \(error == nil)", loss!.data!.floats) }
    }
}
training.synchronizeUpdates()
show("weight", weight.data!.floats)
show("bias", bias.data!.floats)
