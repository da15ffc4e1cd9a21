// What Swift programs rely on beyond the numbers. Prints one line for each fact; the test counts them.
import MLCompute

func check(_ what: String, _ holds: Bool) { print(holds ? "ok  " : "FAIL", what) }
func floats(_ data: Data?) -> [Float] { data!.withUnsafeBytes { Array($0.bindMemory(to: Float.self)) } }

final class Canary {
    static nonisolated(unsafe) var alive = 0
    init() { Canary.alive += 1 }
    deinit { Canary.alive -= 1 }
}

// A program's own subclasses and extensions

class CountingGraph: MLCGraph {
    var nodes = 0
    override func node(with layer: MLCLayer, source: MLCTensor) -> MLCTensor? {
        nodes += 1
        return super.node(with: layer, source: source)
    }
}
final class NamedGraph: CountingGraph {
    let name: String
    init(name: String) { self.name = name; super.init() }
    override convenience init() { self.init(name: "none") }
}
final class Weights: MLCTensor { var epoch = 0 }
extension MLCTensor {
    convenience init(ones count: Int) { self.init(shape: [count], fillWithData: 1, dataType: .float32) }
    var values: [Float] { floats(data) }
}
extension MLCDataType { static var every: [MLCDataType] { [.float32, .float16, .boolean, .int64, .int32, .int8, .uint8] } }
protocol Described { var words: String { get } }
extension MLCLayer: Described { var words: String { "layer \(label)" } }

func objects() {
    let graph = MLCGraph(), x = MLCTensor(shape: [2, 3])
    let layer: MLCLayer = MLCActivationLayer.relu
    let y = graph.node(with: layer, source: x)!
    check("one Python object is one Swift object", graph.layers[0] === layer)
    check("its class is known", type(of: graph.layers[0]) == MLCActivationLayer.self && graph.layers[0] is MLCActivationLayer)
    check("as? to a subclass", (graph.layers[0] as? MLCActivationLayer)?.descriptor.activationType == .relu)
    check("as? to another class", graph.layers[0] as? MLCSoftmaxLayer == nil)
    check("objects in arrays", graph.resultTensors(for: layer) == [y] && graph.sourceTensors(for: layer)[0] === x)
    check("identity is not shared", MLCTensor(shape: [2]) !== MLCTensor(shape: [2]))
    check("hash and ==", Set([x, y, x]).count == 2 && [x: 1][x] == 1 && x != y)
    check("equal to something else", !x.isEqual("x") && !x.isEqual(nil))

    weak var gone: MLCTensor?
    do { let tensor = MLCTensor(shape: [5]); gone = tensor; check("alive while it is held", gone != nil) }
    check("freed when it is not", gone == nil)
    weak var reread: MLCTensor?
    do { reread = graph.resultTensors(for: layer)[0] }
    check("what is held stays the same object", reread === y)

    let descriptor = MLCTensorDescriptor(shape: [2, 3], dataType: .float32)!
    let copy = descriptor.copy() as! MLCTensorDescriptor
    check("copy() is another object of the same class", copy !== descriptor && copy.shape == [2, 3] && copy.dataType == .float32)
    check("copies are equal and hash alike", copy == descriptor && copy.hash == descriptor.hash)
    let policy = MLCConvolutionDescriptor(kernelSizes: (1, 1), inputFeatureChannelCount: 1, outputFeatureChannelCount: 1)
    check("copy(with:) by the protocol", (policy as NSCopying).copy(with: nil) is MLCConvolutionDescriptor)
    check("a tensor is copied", (x.copy() as! MLCTensor).descriptor.shape == [2, 3])
    check("description", "\(descriptor)" == "MLCTensorDescriptor([2, 3], float32)" && descriptor.debugDescription == descriptor.description)
    check("String(describing:)", String(describing: MLCDevice.cpu()) == "MLCDevice(type=MLCDeviceType.cpu)")
    check("an extension's protocol", (layer as Described).words == "layer \(layer.label)")
}

func subclasses() {
    let named = NamedGraph(name: "mine"), x = MLCTensor(shape: [4])
    check("a subclass keeps its state", named.name == "mine" && NamedGraph().name == "none" && named.nodes == 0)
    check("it overrides and calls super", named.node(with: MLCActivationLayer.tanh, source: x) != nil && named.nodes == 1)
    check("it serves where its superclass does", MLCInferenceGraph(graphObjects: [named]).layers.count == 1)
    let weights = Weights(shape: [1, 4], fillWithData: 2, dataType: .float32)
    weights.epoch = 3
    let dense = MLCFullyConnectedLayer(weights: weights, biases: nil, descriptor: .init(kernelSizes: (1, 4), inputFeatureChannelCount: 4, outputFeatureChannelCount: 1))!
    check("inherited initializers", weights.values == [2, 2, 2, 2])
    check("read back as itself", dense.weights === weights && (dense.weights as? Weights)?.epoch == 3)
    check("an extension's initializer", MLCTensor(ones: 3).values == [1, 1, 1])
    check("an extension of an enumeration", MLCDataType.every.map(\.rawValue) == [1, 3, 4, 5, 7, 8, 9])
}

func values() {
    let convolution = MLCConvolutionDescriptor(kernelSizes: (height: 3, width: 5), inputFeatureChannelCount: 2, outputFeatureChannelCount: 4, strides: (2, 1), paddingPolicy: .sized(y: 1, x: 2))
    check("tuples", convolution.kernelSizes == (3, 5) && convolution.strides.y == 2 && convolution.dilationRates == (1, 1))
    check("an enumeration with values", convolution.paddingPolicy == .sized(y: 1, x: 2) && convolution.paddingPolicy != .same)
    if case .sized(let y, let x) = convolution.paddingPolicy { check("its values", y == 1 && x == 2) } else { check("its values", false) }
    let pooling = MLCPoolingDescriptor(type: .average(countIncludesPadding: true), kernelSizes: (2, 2), strides: (2, 2))
    check("another", pooling.poolingType == .average(countIncludesPadding: true) && MLCPoolingType.average() == .average(countIncludesPadding: false))
    check("debugDescription", MLCActivationType.relu.debugDescription == "ReLU" && MLCPaddingPolicy.same.debugDescription == "Same")
    check("the function of that name", MLCLossTypeDebugDescription(.huber) == MLCLossType.huber.debugDescription)
    check("raw values", MLCDataType(rawValue: 99) == nil && MLCDataType(rawValue: 5) == .int64 && MLCLSTMResultMode.outputAndStates.rawValue == 1)
    let options: MLCExecutionOptions = [.synchronous, .profiling]
    check("option sets", options.rawValue == 6 && options.contains(.profiling) && options.subtracting(.profiling) == .synchronous)
    check("a switch over an enumeration", { switch MLCDevice.cpu().type { case .cpu: return true; case .gpu, .any, .ane: return false; @unknown default: return false } }())
    let embedding = MLCEmbeddingDescriptor(embeddingCount: 4, embeddingDimension: 2, paddingIndex: nil, maximumNorm: 1.5, pNorm: nil, scalesGradientByFrequency: false)!
    check("optionals", embedding.maximumNorm == 1.5 && embedding.paddingIndex == nil)
    MLCPlatform.setRNGSeedTo(7)
    check("NSNumber", MLCPlatform.getRNGseed() == 7)
    check("numbers of each kind", MLCTensor(shape: [1], fillWithData: 1.5, dataType: .float32).values == [1.5]
        && MLCTensor(shape: [1], fillWithData: -3, dataType: .int32).data! == Data([253, 255, 255, 255])
        && MLCTensor(shape: [2], fillWithData: true, dataType: .boolean).data! == Data([1, 1]))
    check("static properties", MLCTensorDescriptor.maxTensorDimensions == 4)
    let layer = MLCActivationLayer.relu
    layer.label = "größte ✓"
    check("text", layer.label == "größte ✓")
    layer.isDebuggingEnabled = true
    check("a settable Bool", layer.isDebuggingEnabled)
    let adam = MLCAdamOptimizer(descriptor: MLCOptimizerDescriptor(learningRate: 0.1, gradientRescale: 1, regularizationType: .l2, regularizationScale: 0.5))
    adam.learningRate = 0.25
    check("a settable Float, set through a superclass", (adam as MLCOptimizer).learningRate == 0.25 && adam.beta1 == 0.9 && adam.regularizationType == .l2)
    check("old members", MLCTensorDescriptor(shape: [3])!.dataType == .float32 && MLCTensor(shape: [2], fillWithData: 4).values == [4, 4])
    let anchors = Data([0, 0, 128, 63, 0, 0, 0, 64])
    check("Data to Python and back", MLCYOLOLossDescriptor(anchorBoxes: anchors, anchorBoxCount: 1).anchorBoxes == anchors)
    check("absolute time, autoreleasepool", autoreleasepool { CFAbsoluteTimeGetCurrent() } > 7e8)
}

func answers() {
    check("a failable initializer", MLCTensorDescriptor(shape: [0, -7], dataType: .float32) == nil)
    check("a failable factory", MLCDevice.ane() == nil)
    let x = MLCTensor(shape: [2]), empty = MLCInferenceGraph(graphObjects: [MLCGraph()])
    check("false", !empty.compile(device: .cpu()))
    check("nil for an object", MLCGraph().node(with: MLCActivationLayer.relu, sources: [x, x]) == nil)
    check("an empty array", MLCGraph().resultTensors(for: MLCActivationLayer.relu) == [])
}

func memory() {
    let bytes = UnsafeMutableRawPointer.allocate(byteCount: 24, alignment: 16)
    bytes.bindMemory(to: Float.self, capacity: 6).update(from: [-1, 2, -3, 4, -5, 6], count: 6)
    var freed = 0
    do {
        let data = MLCTensorData(bytesNoCopy: bytes, length: 24) { pointer, length in if pointer == bytes && length == 24 { freed += 1 } }
        check("the caller's memory", data.bytes == bytes && data.length == 24)
        check("not before its time", freed == 0)
    }
    check("the deallocator runs once", freed == 1)
    var weights: [Float] = [1, 2, 3, 4]
    weights.withUnsafeMutableBytes { memory in
        let tensor = MLCTensor(shape: [1, 4], data: MLCTensorData(bytesNoCopy: memory.baseAddress!, length: 16), dataType: .float32)
        check("read without a copy", tensor.values == [1, 2, 3, 4])
        memory.storeBytes(of: 9, as: Float.self)
        check("and seen when it changes", tensor.values == [9, 2, 3, 4])
    }
    let constant: [Float] = [3, 1]
    let inference = MLCInferenceGraph(graphObjects: [{ let g = MLCGraph(); g.node(with: MLCActivationLayer.relu, source: MLCTensor(shape: [2])); return g }()])
    let source = inference.sourceTensors(for: inference.layers[0])[0]
    check("compile", inference.addInputs(["x": source]) && inference.compile(device: .cpu()))
    var output: [Float] = [0, 0]
    let result = inference.resultTensors(for: inference.layers[0])[0]
    constant.withUnsafeBytes { memory in
        let data = MLCTensorData(immutableBytesNoCopy: memory.baseAddress!, length: 8)
        check("execute without a handler", inference.execute(inputsData: ["x": data], batchSize: 2, options: [.synchronous]))
    }
    check("copied from the device", output.withUnsafeMutableBytes {
        result.copyDataFromDeviceMemory(toBytes: $0.baseAddress!, length: 8, synchronizeWithDevice: false)
    } && output == [3, 1])
    check("no data is nil", MLCTensor(shape: [3]).data == nil)
    let kept = result.data!
    check("Data keeps the memory", floats(kept) == [3, 1])
    bytes.deallocate()
}

func handlers(_ inference: MLCInferenceGraph, _ data: MLCTensorData) {
    var seen: [Float] = [], failure: (any Error)?
    let done = DispatchSemaphore(value: 0)
    do {
        let canary = Canary()
        inference.execute(inputsData: ["x": data], batchSize: 0) { result, error, seconds in
            _ = canary
            seen = result!.values
            if error != nil || seconds != 0 { seen = [] }
            DispatchQueue.global().async { _ = MLCTensor(shape: [1]); done.signal() }
            done.wait()     // a handler may wait for another thread that uses ML Compute
        }
    }
    check("a handler", seen == [0, 2, 0, 4])
    check("its closure is freed", Canary.alive == 0)
    inference.execute(inputsData: ["wrong": data], batchSize: 0) { result, error, _ in failure = result == nil ? error : nil }
    check("a handler's error", failure?.localizedDescription.contains("'wrong'") == true)
    var nested = false
    inference.execute(inputsData: ["x": data], batchSize: 0) { _, _, _ in
        nested = inference.execute(inputsData: ["x": data], batchSize: 0, options: [.synchronous])
    }
    check("a handler executes", nested)
}

func asynchronous(_ inference: MLCInferenceGraph, _ data: MLCTensorData) async throws {
    let (result, seconds) = try await inference.execute(inputsData: ["x": data], batchSize: 0)
    check("an async form", result!.values == [0, 2, 0, 4] && seconds > 0)
    do {
        try await inference.execute(inputsData: ["wrong": data], batchSize: 0)
        check("an async form throws", false)
    } catch {
        check("an async form throws", error.localizedDescription.contains("'wrong'"))
    }
}

func threads() {
    let lock = NSLock()
    nonisolated(unsafe) var right = 0
    DispatchQueue.concurrentPerform(iterations: 200) { i in
        let tensor = MLCTensor(shape: [i % 4 + 1], fillWithData: NSNumber(value: i), dataType: .float32)
        if tensor.values.allSatisfy({ $0 == Float(i) }) { lock.withLock { right += 1 } }
    }
    check("many threads", right == 200)
}

func neighbours() {
    final class Model: ObservableObject { @Published var loss: Float = 1 }
    let model = Model()
    model.loss = 0.5
    model.objectWillChange.send()
    check("ObservableObject and @Published", model.loss == 0.5)
    let devices = MTLCopyAllDevices()
    check("Metal's devices are ML Compute's", devices.count == (MLCDevice.gpu()?.gpuDevices.count ?? 0) && (MTLCreateSystemDefaultDevice() == nil) == devices.isEmpty)
    if let gpu = devices.first {
        check("a device made of one", MLCDevice(gpuDevices: [gpu])?.type == .gpu && !gpu.name.isEmpty && gpu.recommendedMaxWorkingSetSize > 0)
    }
}

objects()
subclasses()
values()
answers()
memory()
let graph = MLCGraph(), source = MLCTensor(shape: [4])
graph.node(with: MLCActivationLayer.relu, source: source)
let inference = MLCInferenceGraph(graphObjects: [graph])
inference.addInputs(["x": source])
inference.compile(device: .cpu())
let numbers = UnsafeMutablePointer<Float>.allocate(capacity: 4)
numbers.update(from: [-1, 2, -3, 4], count: 4)
let data = MLCTensorData(bytesNoCopy: numbers, length: 16)
handlers(inference, data)
try await asynchronous(inference, data)
threads()
neighbours()
