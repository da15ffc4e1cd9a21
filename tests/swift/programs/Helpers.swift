// Numbers that a program and its twin in Python agree about, and how they are printed.
import MLCompute

func spread(_ count: Int, _ seed: Int) -> [Float] { (0..<count).map { Float(($0 * 37 + seed * 11) % 101) / 50 - 1 } }

func show(_ name: String, _ values: [Float]) {
    print(name, values.map { String(format: "%.9g", Double($0)) }.joined(separator: " "))
}

/// Memory that lives as long as the program.
func memory(_ values: [Float]) -> MLCTensorData {
    let kept = UnsafeMutableBufferPointer<Float>.allocate(capacity: values.count)
    _ = kept.initialize(from: values)
    return MLCTensorData(bytesNoCopy: kept.baseAddress!, length: 4 * values.count)
}

func filled(_ shape: [Int], _ seed: Int) -> MLCTensor {
    MLCTensor(shape: shape, data: memory(spread(shape.reduce(1, *), seed)), dataType: .float32)
}

func dense(_ inputs: Int, _ outputs: Int, _ seed: Int) -> MLCFullyConnectedLayer {
    MLCFullyConnectedLayer(weights: filled([1, inputs * outputs, 1, 1], seed), biases: filled([1, outputs, 1, 1], seed + 1),
                           descriptor: MLCConvolutionDescriptor(kernelSizes: (1, 1), inputFeatureChannelCount: inputs, outputFeatureChannelCount: outputs))!
}

func settings(_ rate: Float) -> MLCOptimizerDescriptor {
    MLCOptimizerDescriptor(learningRate: rate, gradientRescale: 1, regularizationType: .none, regularizationScale: 0)
}

extension Data {
    var floats: [Float] { withUnsafeBytes { Array($0.bindMemory(to: Float.self)) } }
}
