// A generator learns to deceive a discriminator: two training graphs that are linked, blocks behind a protocol, and data
// that lies in Foundation's objects.
import MLCompute

protocol Block {
    func added(to graph: MLCGraph, after source: MLCTensor) -> MLCTensor
}
extension MLCFullyConnectedLayer: Block {
    func added(to graph: MLCGraph, after source: MLCTensor) -> MLCTensor { graph.node(with: self, source: source)! }
}
struct Activation: Block {
    let make: @Sendable () -> MLCActivationLayer
    func added(to graph: MLCGraph, after source: MLCTensor) -> MLCTensor { graph.node(with: make(), source: source)! }
}
struct Chain<Blocks: Sequence>: Block where Blocks.Element == any Block {
    let blocks: Blocks
    func added(to graph: MLCGraph, after source: MLCTensor) -> MLCTensor { blocks.reduce(source) { $1.added(to: graph, after: $0) } }
}
final class Batch {
    private let storage: NSMutableData
    init(_ values: [Float]) { storage = NSMutableData(data: values.withUnsafeBytes { Data($0) }) }
    var data: MLCTensorData { MLCTensorData(bytesNoCopy: storage.mutableBytes, length: storage.length) }
}
extension MLCTrainingGraph {
    static func adversary(_ graph: MLCGraph, _ loss: MLCLossLayer?) -> MLCTrainingGraph {
        MLCTrainingGraph(graphObjects: [graph], lossLayer: loss, optimizer: MLCAdamOptimizer(descriptor: settings(0.03125)))
    }
    func write(_ batches: [String: (MLCTensor, Batch)]) {
        bindAndWriteData(batches.mapValues { $0.1.data }, forInputs: batches.mapValues(\.0), to: .cpu(), batchSize: count, synchronous: true)
    }
}

let count = 8
let leaky = Activation { .leakyReLU(negativeSlope: 0.25) }
let judge = [dense(1, 6, 1), dense(6, 1, 3)]
let discriminator = Chain(blocks: [judge[0], leaky, judge[1]] as [any Block])
let generator = Chain(blocks: [dense(2, 4, 5), leaky, dense(4, 1, 7)] as [any Block])
var entropy: MLCLossLayer { MLCLossLayer(descriptor: MLCLossDescriptor(type: .sigmoidCrossEntropy, reductionType: .mean)) }

// The discriminator by itself.
let seen = MLCTensor(shape: [count, 1]), truth = MLCTensor(shape: [count, 1])
let judging = MLCGraph()
_ = discriminator.added(to: judging, after: seen)
let judgeTraining = MLCTrainingGraph.adversary(judging, entropy)
print(judgeTraining.addInputs(["seen": seen], lossLabels: ["truth": truth]), judgeTraining.compile(device: .cpu()))

// The generator, whose gradient comes through a copy of the discriminator, of the same weights, that does not learn here.
let noise = MLCTensor(shape: [count, 2]), wanted = MLCTensor(shape: [count, 1])
let making = MLCGraph(), deceiving = MLCGraph()
let made = generator.added(to: making, after: noise)
var verdict = made
for (i, layer) in judge.enumerated() {
    let copy = MLCFullyConnectedLayer(weights: layer.weights, biases: layer.biases, descriptor: layer.descriptor)!
    verdict = deceiving.node(with: copy, sources: [verdict], disableUpdate: true)!
    if i == 0 { verdict = leaky.added(to: deceiving, after: verdict) }
}
let makerTraining = MLCTrainingGraph.adversary(making, nil), deceiver = MLCTrainingGraph.adversary(deceiving, entropy)
print(makerTraining.addInputs(["noise": noise], lossLabels: nil), deceiver.addInputs([:], lossLabels: ["wanted": wanted]))
print([makerTraining, deceiver].map { $0.compile(options: [.linkGraphs], device: .cpu()) }, makerTraining.link(with: [deceiver]))

let ones = Batch([Float](repeating: 1, count: count)), zeros = Batch([Float](repeating: 0, count: count))
for step in 0..<6 {
    let random = Batch(spread(2 * count, step))
    makerTraining.write(["noise": (noise, random)])
    deceiver.write(["wanted": (wanted, ones)])
    makerTraining.executeForward(batchSize: count, options: [.synchronous])
    deceiver.executeForward(batchSize: count, options: [.synchronous]) { loss, error, _ in
        if let error { fatalError(error.localizedDescription) }
        show("deceiver", loss!.data!.floats)
    }
    print(deceiver.executeGradient(batchSize: count, options: [.synchronous]), makerTraining.executeGradient(batchSize: count, options: [.synchronous]), makerTraining.executeOptimizerUpdate(options: [.synchronous]))
    let forged = Batch(made.data!.floats), real = Batch(spread(count, 40 + step).map { $0 / 4 + 2 })
    for (values, labels) in [(real, ones), (forged, zeros)] {
        judgeTraining.execute(inputsData: ["seen": values.data], lossLabelsData: ["truth": labels.data], lossLabelWeightsData: nil, batchSize: count, options: [.synchronous]) { loss, _, _ in
            show("judge", loss!.data!.floats)
        }
    }
}
show("made", made.data!.floats)
[judgeTraining, makerTraining].forEach { $0.synchronizeUpdates() }
show("judge's weights", judge.flatMap { $0.weights.data!.floats })
