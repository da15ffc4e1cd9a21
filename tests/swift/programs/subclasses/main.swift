// A network as a subclass of a graph, layers made by an extension, and a protocol of the program's own.
import MLCompute

protocol Trainable { func step(_ inputs: [Float], _ labels: [Float]) -> Float }

extension MLCGraph {
    func dense(_ source: MLCTensor, _ outputs: Int, seed: Int) -> MLCTensor {
        let inputs = source.descriptor.shape[1]
        return node(with: main_dense(inputs, outputs, seed), source: source)!
    }
}
func main_dense(_ inputs: Int, _ outputs: Int, _ seed: Int) -> MLCLayer { dense(inputs, outputs, seed) }

class Network: MLCGraph {
    let input: MLCTensor
    private(set) var output: MLCTensor
    init(batch: Int, widths: [Int]) {
        input = MLCTensor(shape: [batch, widths[0]])
        output = input
        super.init()
        for (i, width) in widths.dropFirst().enumerated() {
            output = dense(output, width, seed: 3 * i)
            if i + 2 < widths.count { output = node(with: MLCActivationLayer.softPlus(beta: 2), source: output)! }
        }
    }
}
final class Regression: Network, Trainable {
    private lazy var label = MLCTensor(shape: output.descriptor.shape)
    private lazy var training: MLCTrainingGraph = {
        let made = MLCTrainingGraph(graphObjects: [self], lossLayer: MLCLossLayer.meanAbsoluteError(reductionType: .mean, weight: 1), optimizer: MLCSGDOptimizer(descriptor: settings(0.1)))
        made.addInputs(["x": input], lossLabels: ["y": label])
        made.compile(device: .cpu())
        return made
    }()
    func step(_ inputs: [Float], _ labels: [Float]) -> Float {
        var loss: Float = .nan
        training.execute(inputsData: ["x": memory(inputs)], lossLabelsData: ["y": memory(labels)], lossLabelWeightsData: nil, batchSize: 2, options: [.synchronous]) { result, _, _ in loss = result!.data!.floats[0] }
        return loss
    }
}

let network = Regression(batch: 2, widths: [3, 4, 1])
print(network.layers.count, network.output.descriptor.shape, (network as Any) is Trainable, (network as MLCGraph) is Network)
for step in 0..<4 { show("loss", [(network as Trainable).step(spread(6, step), spread(2, step + 9))]) }
