// Ends in the way that its first argument names, while other threads compute.
import MLCompute

let how = CommandLine.arguments[1]
atexit { print("ordered early") }

func square(_ side: Int) -> (MLCInferenceGraph, MLCTensorData) {
    let x = MLCTensor(shape: [side, side]), graph = MLCGraph()
    graph.node(with: MLCMatMulLayer(descriptor: MLCMatMulDescriptor())!, sources: [x, x])
    let inference = MLCInferenceGraph(graphObjects: [graph])
    inference.addInputs(["x": x])
    inference.compile(device: .cpu())
    let numbers = UnsafeMutablePointer<Float>.allocate(capacity: side * side)
    numbers.initialize(repeating: 0.5, count: side * side)
    return (inference, MLCTensorData(bytesNoCopy: numbers, length: 4 * side * side))
}

if how == "start" {
    DispatchQueue.global().async { _ = square(8) }      // imports torch, which takes its time
    usleep(UInt32(CommandLine.arguments[2])! * 1000)
    print("leaving")
    exit(3)
}

let lock = NSLock()
nonisolated(unsafe) var steps = 0
for _ in 0..<2 {
    DispatchQueue.global().async {
        let (inference, data) = square(how == "long" ? 3000 : 128)
        while true {
            if how == "long" { lock.withLock { steps += 100 } }
            if !inference.execute(inputsData: ["x": data], batchSize: 0, options: [.synchronous]) { print("refused") }
            lock.withLock { steps += 1 }
        }
    }
}
while lock.withLock({ steps }) < 100 { usleep(1000) }
atexit { print("ordered late") }
print("leaving")
switch how {
case "exit", "long": exit(3)
case "exit on another thread":
    Thread.detachNewThread { exit(4) }
    while true { sleep(1) }
default: break
}
