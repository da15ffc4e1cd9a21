// Ends in the way that its argument names, after it has printed.
import MLCompute

print("before, with a line")
print("and without", terminator: "")
let x = MLCTensor(shape: [2]), graph = MLCGraph()
graph.node(with: MLCActivationLayer.relu, source: x)
let inference = MLCInferenceGraph(graphObjects: [graph])
inference.addInputs(["x": x])
inference.compile(device: .cpu())
let data = MLCTensorData(bytesNoCopy: UnsafeMutableRawPointer.allocate(byteCount: 8, alignment: 8), length: 8)
switch CommandLine.arguments[1] {
case "trap":
    let nothing: Int? = CommandLine.arguments.count > 9 ? 1 : nil
    print(nothing!)
case "handler": inference.execute(inputsData: ["x": data], batchSize: 0) { _, _, _ in fatalError("in a handler") }
case "exit": exit(Int32(CommandLine.arguments[2])!)
case "exit in a handler": inference.execute(inputsData: ["x": data], batchSize: 0) { _, _, _ in exit(5) }
case "initializer": _ = MLCTensor(shape: [0], dataType: .float32)
case "exception": _ = MLCDevice(gpuDevices: [Pretended()])
case "refusals":
    for _ in 0..<3 { _ = MLCTensorDescriptor(shape: [0], dataType: .float32) }
    _ = MLCTensorDescriptor(shape: [-1], dataType: .float32)
case "input": print("got", readLine() ?? "nothing", FileManager.default.currentDirectoryPath)
default: break
}
final class Pretended: MTLDevice {
    let name = "none", registryID: UInt64 = 0, recommendedMaxWorkingSetSize: UInt64 = 0
}
