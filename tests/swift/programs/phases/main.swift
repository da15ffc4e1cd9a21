// Forward, gradient and update one by one; gradients read, one added by the program, one stopped.
import MLCompute

let x = MLCTensor(shape: [3, 4]), y = MLCTensor(shape: [3, 2])
let graph = MLCGraph()
let first = dense(4, 5, 1), second = dense(5, 2, 3)
let hidden = graph.node(with: MLCActivationLayer.sigmoid, source: graph.node(with: first, source: x)!)!
graph.node(with: second, source: hidden)
let training = MLCTrainingGraph(graphObjects: [graph], lossLayer: MLCLossLayer.huberLoss(reductionType: .sum, delta: 0.5, weight: 1), optimizer: MLCRMSPropOptimizer(descriptor: settings(0.01)))
training.addInputs(["x": x], lossLabels: ["y": y])
let user = training.allocateUserGradient(for: hidden)!
print(user.descriptor.shape, training.compile(options: [.computeAllGradients], device: .cpu()))
var losses: [Float] = []
for step in 0..<3 {
    training.bindAndWriteData(["x": memory(spread(12, step))], forInputs: ["x": x], to: .cpu(), batchSize: 3, synchronous: true)
    training.bindAndWriteData(["y": memory(spread(6, 50 + step))], forInputs: ["y": y], to: .cpu(), batchSize: 3, synchronous: true)
    user.bindAndWriteData(memory(spread(15, 90 + step).map { $0 / 8 }), to: .cpu())
    print(training.executeForward(batchSize: 3, options: [.synchronous]) { loss, _, _ in losses += loss!.data!.floats },
          training.executeGradient(batchSize: 3, options: [.synchronous]))
    show("first", training.gradientData(forParameter: first.weights, layer: first)!.floats)
    show("second", training.gradientData(forParameter: second.biases!, layer: second)!.floats)
    let input = training.gradientTensor(forInput: x)
    print("input", input == nil ? "nil" : "\(input!.descriptor.shape)", training.sourceGradientTensors(for: second).count, training.resultGradientTensors(for: second).count)
    print(training.executeOptimizerUpdate(options: [.synchronous]))
}
show("losses", losses)
training.synchronizeUpdates()
show("weights", first.weights.data!.floats)
