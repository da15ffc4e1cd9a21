// The async forms: three phases awaited one after the other, and inference in several tasks.
import MLCompute

func train() async throws {
    let x = MLCTensor(shape: [2, 3]), y = MLCTensor(shape: [2, 2])
    let graph = MLCGraph()
    let layer = dense(3, 2, 5)
    graph.node(with: layer, source: x)
    let training = MLCTrainingGraph(graphObjects: [graph], lossLayer: MLCLossLayer.meanSquaredError(reductionType: .mean, weight: 1), optimizer: MLCSGDOptimizer(descriptor: settings(0.25)))
    training.addInputs(["x": x], lossLabels: ["y": y])
    training.compile(device: .cpu())
    for step in 0..<3 {
        training.bindAndWriteData(["x": memory(spread(6, step))], forInputs: ["x": x], to: .cpu(), batchSize: 2, synchronous: true)
        training.bindAndWriteData(["y": memory(spread(4, 20 + step))], forInputs: ["y": y], to: .cpu(), batchSize: 2, synchronous: true)
        let (loss, seconds) = try await training.executeForward(batchSize: 2)
        let backward = try await training.executeGradient(batchSize: 2)
        let update = try await training.executeOptimizerUpdate()
        show("loss", loss!.data!.floats)
        print(seconds > 0, backward > 0, update > 0)
    }
    await refused(training)
    show("weights", layer.weights.data!.floats)
}
func refused(_ training: MLCTrainingGraph) async {
    do { try await training.executeGradient(batchSize: 2) } catch { print("thrown", error.localizedDescription.contains("executeForward")) }
}
func answer(_ seed: Int) async throws -> [Float] {
    let source = MLCTensor(shape: [2, 3]), own = MLCGraph()
    own.node(with: dense(3, 2, seed), source: source)
    let inference = MLCInferenceGraph(graphObjects: [own])
    inference.addInputs(["x": source])
    inference.compile(device: .cpu())
    return try await inference.execute(inputsData: ["x": memory(spread(6, seed))], batchSize: 2).result!.data!.floats
}
try await train()
try await withThrowingTaskGroup(of: (Int, [Float]).self) { group in
    for seed in 0..<8 { group.addTask { (seed, try await answer(seed)) } }
    var found: [Int: [Float]] = [:]
    for try await (seed, values) in group { found[seed] = values }
    for seed in 0..<8 { show("answer \(seed)", found[seed]!) }
}
