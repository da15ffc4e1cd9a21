// An LSTM of two directions whose states come back in.
import MLCompute

let batch = 2, time = 3, features = 2, hidden = 4
let shape = MLCLSTMDescriptor(inputSize: features, hiddenSize: hidden, layerCount: 1, usesBiases: true, batchFirst: true, isBidirectional: true, returnsSequences: true, dropout: 0, resultMode: .outputAndStates)
let lstm = MLCLSTMLayer(descriptor: shape,
                        inputWeights: (0..<8).map { filled([1, features * hidden, 1, 1], $0) },
                        hiddenWeights: (0..<8).map { filled([1, hidden * hidden, 1, 1], $0 + 8) },
                        biases: (0..<8).map { filled([1, hidden, 1, 1], $0 + 16) })!
let x = MLCTensor(shape: [batch, time, features])
let h = MLCTensor(shape: [1, 2, batch, hidden]), c = MLCTensor(shape: [1, 2, batch, hidden])
let graph = MLCGraph()
let output = graph.node(with: lstm, sources: [x, h, c])!
let results = graph.resultTensors(for: lstm)
print(output.descriptor.shape, results.count, results.map(\.descriptor.shape), lstm.descriptor.resultMode == .outputAndStates, lstm.gateActivations.count)
let inference = MLCInferenceGraph(graphObjects: [graph])
inference.addInputs(["x": x, "h": h, "c": c])
inference.addOutputs(["output": results[0], "h": results[1], "c": results[2]])
inference.compile(device: .cpu())
var states: [Float] = .init(repeating: 0, count: 2 * batch * hidden), cells = states
for step in 0..<3 {
    inference.execute(inputsData: ["x": memory(spread(batch * time * features, 30 + step)), "h": memory(states), "c": memory(cells)], batchSize: 0, options: [.synchronous])
    states = results[1].data!.floats
    cells = results[2].data!.floats
    show("output", results[0].data!.floats)
    show("states", states)
    show("cells", cells)
}
