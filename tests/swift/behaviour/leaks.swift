// Rounds of everything that makes objects, and what they leave behind.
import MLCompute

func resident() -> Int { Int(try! String(contentsOfFile: "/proc/self/statm", encoding: .utf8).split(separator: " ")[1])! * Int(getpagesize()) / 1024 }
final class Canary {
    nonisolated(unsafe) static var alive = 0
    init() { Canary.alive += 1 }
    deinit { Canary.alive -= 1 }
}
let x = MLCTensor(shape: [4, 3]), graph = MLCGraph()
let y = graph.node(with: MLCActivationLayer.relu, source: x)!
let inference = MLCInferenceGraph(graphObjects: [graph])
inference.addInputs(["x": x])
inference.compile(device: .cpu())
let memory = UnsafeMutableRawPointer.allocate(byteCount: 48, alignment: 16)
memset(memory, 0, 48)
nonisolated(unsafe) var freed = 0
func round() {
    let canary = Canary()
    inference.execute(inputsData: ["x": MLCTensorData(bytesNoCopy: memory, length: 48) { _, _ in freed += 1 }], batchSize: 4, options: [.synchronous]) { result, _, _ in
        _ = canary
        _ = result!.data!.count
        _ = result!.descriptor.shape
    }
    _ = graph.layers
    _ = MLCTensorDescriptor(shape: [1, 2], dataType: .int32)!.copy()
    _ = "\(y)"
    _ = MLCConvolutionDescriptor(kernelSizes: (1, 1), inputFeatureChannelCount: 1, outputFeatureChannelCount: 1, paddingPolicy: .sized(y: 1, x: 1)).paddingPolicy
    _ = MLCTensorDescriptor(shape: [], dataType: .int32)
}
let rounds = 6000
for _ in 0..<1500 { round() }
let before = resident()
for _ in 0..<rounds { round() }
print("kilobytes", resident() - before, "closures", Canary.alive, "freed", freed == 1500 + rounds)

// Threads that come and go, each with calls of its own.
nonisolated(unsafe) let shared = inference
for _ in 0..<3 {
    DispatchQueue.concurrentPerform(iterations: 8) { _ in
        for _ in 0..<200 {
            let tensor = MLCTensor(shape: [2])
            precondition(tensor.descriptor.shape == [2])
            _ = graph.layers
            shared.execute(inputsData: ["x": MLCTensorData(bytesNoCopy: memory, length: 48)], batchSize: 4) { result, _, _ in _ = result!.descriptor }
        }
    }
}
let group = DispatchGroup()
for _ in 0..<50 {
    group.enter()
    Thread.detachNewThread { precondition(MLCTensor(shape: [3]).descriptor.shape == [3]); group.leave() }
}
group.wait()
print("threads done, closures", Canary.alive)
