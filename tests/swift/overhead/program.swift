// The same as program.py: for each line with a measure's name, what one call costs, in microseconds of processor time.
import MLCompute

func seconds() -> Double {
    var now = timespec()
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now)
    return Double(now.tv_sec) + Double(now.tv_nsec) * 1e-9
}
let pixels = UnsafeMutableRawPointer.allocate(byteCount: 32 * 784 * 4, alignment: 64)
memset(pixels, 0, 32 * 784 * 4)
let answers = UnsafeMutableRawPointer.allocate(byteCount: 1280, alignment: 64)
memset(answers, 0, 1280)
for i in 0..<32 { answers.storeBytes(of: 1, toByteOffset: i * 40, as: Float.self) }
let x = MLCTensor(shape: [32, 784, 1, 1]), y = MLCTensor(shape: [32, 10])
func dense(_ inputs: Int, _ outputs: Int) -> MLCLayer {
    MLCFullyConnectedLayer(
        weights: MLCTensor(shape: [1, inputs * outputs, 1, 1], fillWithData: 0.01, dataType: .float32), biases: MLCTensor(shape: [1, outputs, 1, 1], fillWithData: 0, dataType: .float32),
        descriptor: MLCConvolutionDescriptor(kernelSizes: (inputs, outputs), inputFeatureChannelCount: inputs, outputFeatureChannelCount: outputs))!
}
let graph = MLCGraph()
let hidden = graph.node(with: MLCActivationLayer.relu, source: graph.node(with: dense(784, 128), source: x)!)!
let output = graph.node(with: dense(128, 10), source: hidden)!
let training = MLCTrainingGraph(
    graphObjects: [graph], lossLayer: MLCLossLayer(descriptor: MLCLossDescriptor(type: .softmaxCrossEntropy, reductionType: .mean)),
    optimizer: MLCAdamOptimizer(descriptor: MLCOptimizerDescriptor(learningRate: 0.001, gradientRescale: 1, regularizationType: .none, regularizationScale: 0)))
training.addInputs(["x": x], lossLabels: ["y": y])
training.compile(options: [], device: .cpu())
let one = MLCGraph()
one.node(with: MLCActivationLayer.relu, source: y)
let small = MLCInferenceGraph(graphObjects: [one])
small.addInputs(["y": y])
small.compile(device: .cpu())
let xs = MLCTensorData(bytesNoCopy: pixels, length: 32 * 784 * 4), ys = MLCTensorData(bytesNoCopy: answers, length: 1280)
let given = ["y": ys]
@inline(never) func look(_ data: [String: MLCTensorData]) { precondition(!data.isEmpty) }
let measures: [String: (Int, () -> Void)] = [
    "number": (20000, { _ = output.tensorID }),
    "shape": (10000, { _ = output.descriptor.shape }),
    "execute": (500, { small.execute(inputsData: given, batchSize: 32, options: [.synchronous]) }),
    "with literal": (500, { small.execute(inputsData: ["y": ys], batchSize: 32, options: [.synchronous]) }),
    "and literal": (500, { small.execute(inputsData: given, batchSize: 32, options: [.synchronous]); look(["y": ys]) }),
    "step": (50, { training.execute(inputsData: ["x": xs], lossLabelsData: ["y": ys], lossLabelWeightsData: nil, batchSize: 32, options: [.synchronous]) { _, _, _ in } }),
]
while let name = readLine() {
    let (count, body) = measures[name]!, start = seconds()
    for _ in 0..<count { body() }
    print((seconds() - start) / Double(count) * 1e6)
}
