// Waits to be interrupted, in the place that its argument names.
import MLCompute

let place = CommandLine.arguments[1]
if place == "start" { print("ready") }      // what comes next imports torch
let size = 600
let x = MLCTensor(shape: [size, size]), graph = MLCGraph()
var y = x
for _ in 0..<(place == "execute" ? 60 : 1) {
    let weights = MLCTensor(shape: [1, size * size], fillWithData: 0, dataType: .float32)
    y = graph.node(with: MLCFullyConnectedLayer(weights: weights, biases: nil, descriptor: .init(kernelSizes: (1, 1), inputFeatureChannelCount: size, outputFeatureChannelCount: size))!, source: y)!
    if place == "execute" { y = graph.node(with: MLCActivationLayer.tanh, source: y)! }
}
let inference = MLCInferenceGraph(graphObjects: [graph])
inference.addInputs(["x": x])
inference.compile(device: .cpu())
let zeros = UnsafeMutableRawPointer.allocate(byteCount: 4 * size * size, alignment: 64)
memset(zeros, 0, 4 * size * size)
let data = MLCTensorData(bytesNoCopy: zeros, length: 4 * size * size)

switch place {
case "start":
    while true { usleep(100_000) }
case "main":
    print("ready")
    while true { usleep(100_000) }
case "handler":
    inference.execute(inputsData: ["x": data], batchSize: 0) { _, _, _ in
        print("ready")
        while true { usleep(100_000) }
    }
case "execute":
    print("ready")
    while true { inference.execute(inputsData: ["x": data], batchSize: 0, options: [.synchronous]) }
case "wait":
    print("ready")
    DispatchSemaphore(value: 0).wait()
case "own":
    signal(SIGINT) { _ in _exit(33) }
    inference.execute(inputsData: ["x": data], batchSize: 0)
    print("ready")
    while true { usleep(100_000) }
default:
    fatalError("no place \(place)")
}
