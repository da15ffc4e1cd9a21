// What the optimizer remembers is the program's own memory: saved, put back, and training goes on as if it had not stopped.
import MLCompute

final class Run {
    let x = MLCTensor(shape: [2, 3]), y = MLCTensor(shape: [2, 1])
    let layer = dense(3, 1, 7)
    let training: MLCTrainingGraph
    var states: [MLCTensorData] = []
    init(_ saved: [[Float]]?, weights: [[Float]]?, timeStep: Int) {
        let graph = MLCGraph()
        graph.node(with: layer, source: x)
        training = MLCTrainingGraph(graphObjects: [graph], lossLayer: MLCLossLayer.meanSquaredError(reductionType: .mean, weight: 1),
                                    optimizer: MLCAdamOptimizer(descriptor: settings(0.1), beta1: 0.9, beta2: 0.99, epsilon: 1e-7, timeStep: timeStep))
        training.addInputs(["x": x], lossLabels: ["y": y])
        for (i, parameter) in [layer.weights, layer.biases!].enumerated() {
            let count = parameter.descriptor.shape.reduce(1, *)
            let given = (0..<2).map { memory(saved?[2 * i + $0] ?? [Float](repeating: 0, count: count)) }
            training.bindOptimizerData(given, deviceData: nil, with: parameter)
            states += given
            if let weights { parameter.bindAndWriteData(memory(weights[i]), to: .cpu()) }
        }
        training.compile(device: .cpu())
    }
    func steps(_ range: Range<Int>) {
        for step in range {
            training.execute(inputsData: ["x": memory(spread(6, step))], lossLabelsData: ["y": memory(spread(2, 40 + step))], lossLabelWeightsData: nil, batchSize: 2, options: [.synchronous]) { loss, _, _ in show("loss \(step)", loss!.data!.floats) }
        }
        training.synchronizeUpdates()
    }
    var saved: [[Float]] { states.map { Array(UnsafeRawBufferPointer(start: $0.bytes, count: $0.length).bindMemory(to: Float.self)) } }
    var weights: [[Float]] { [layer.weights.data!.floats, layer.biases!.data!.floats] }
}

let whole = Run(nil, weights: nil, timeStep: 1)
whole.steps(0..<4)
let checkpoint = whole.saved, weights = whole.weights
checkpoint.forEach { show("state", $0) }
whole.steps(4..<7)
let resumed = Run(checkpoint, weights: weights, timeStep: 5)
resumed.steps(4..<7)
zip(whole.weights, resumed.weights).forEach { show("weights", $0); print($0 == $1) }
