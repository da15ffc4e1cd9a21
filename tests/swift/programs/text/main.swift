// Sentences, an embedding and an LSTM: an actor that trains, a generic vocabulary, Codable settings, and inference graphs
// that are linked.
import MLCompute

struct Shape: Codable, Sendable {
    var words = 4, width = 3, hidden = 4, classes = 2
    var rate: Float = 0.0625
}
struct Vocabulary<Token: Hashable & Comparable & Sendable>: Sendable {
    private let numbers: [Token: Int32]
    init(_ tokens: some Sequence<Token>) { numbers = Dictionary(uniqueKeysWithValues: Set(tokens).sorted().enumerated().map { ($1, Int32($0 + 1)) }) }
    var count: Int { numbers.count + 1 }
    subscript(token: Token) -> Int32 { numbers[token, default: 0] }
}
enum Mood: Int, CaseIterable, Sendable { case good, bad }
struct Sentence: Sendable {
    let words: [String], mood: Mood
    init(_ text: String, _ mood: Mood) { (words, self.mood) = (text.split(separator: " ").map(String.init), mood) }
}

/// Bytes of any plain numbers, freed by the data's own deallocator.
func bytes<Number: BitwiseCopyable>(_ numbers: [Number]) -> MLCTensorData {
    let kept = UnsafeMutableBufferPointer<Number>.allocate(capacity: numbers.count)
    _ = kept.initialize(from: numbers)
    return MLCTensorData(bytesNoCopy: kept.baseAddress!, length: MemoryLayout<Number>.stride * numbers.count) { pointer, _ in pointer.deallocate() }
}

actor Reader {
    let shape: Shape, vocabulary: Vocabulary<String>
    private let training: MLCTrainingGraph, words: MLCTensor, reading: MLCInferenceGraph, deciding: MLCInferenceGraph, answer: MLCTensor
    private let embedding: MLCEmbeddingLayer

    init(_ shape: Shape, _ vocabulary: Vocabulary<String>, batch: Int) {
        (self.shape, self.vocabulary) = (shape, vocabulary)
        words = MLCTensor(shape: [batch, shape.words], dataType: .int32)
        embedding = MLCEmbeddingLayer(descriptor: MLCEmbeddingDescriptor(embeddingCount: vocabulary.count, embeddingDimension: shape.width)!, weights: filled([vocabulary.count, shape.width], 1))
        let lstm = MLCLSTMLayer(
            descriptor: MLCLSTMDescriptor(inputSize: shape.width, hiddenSize: shape.hidden, layerCount: 1, usesBiases: true, batchFirst: true, isBidirectional: false, returnsSequences: false, dropout: 0),
            inputWeights: (0..<4).map { filled([1, shape.width * shape.hidden, 1, 1], 10 + $0) }, hiddenWeights: (0..<4).map { filled([1, shape.hidden * shape.hidden, 1, 1], 20 + $0) },
            biases: (0..<4).map { filled([1, shape.hidden, 1, 1], 30 + $0) })!
        let lower = MLCGraph(), upper = MLCGraph()
        let states = lower.node(with: lstm, source: lower.node(with: embedding, source: words)!)!
        let flat = upper.reshape(shape: [batch, shape.hidden], source: states)!
        answer = upper.node(with: dense(shape.hidden, shape.classes, 40), source: flat)!
        training = MLCTrainingGraph(
            graphObjects: [lower, upper], lossLayer: MLCLossLayer(descriptor: MLCLossDescriptor(type: .softmaxCrossEntropy, reductionType: .mean)),
            optimizer: MLCAdamOptimizer(descriptor: settings(shape.rate)))
        training.addInputs(["words": words], lossLabels: ["mood": MLCTensor(shape: [batch, shape.classes])])
        training.compile(device: .cpu())
        reading = MLCInferenceGraph(graphObjects: [lower])
        deciding = MLCInferenceGraph(graphObjects: [upper])
        print(reading.addInputs(["words": words]), reading.link(with: [deciding]), states.descriptor.shape, answer.descriptor.shape)
    }

    private func numbers(_ sentences: [Sentence]) -> MLCTensorData {
        bytes(sentences.flatMap { sentence in (0..<shape.words).map { $0 < sentence.words.count ? vocabulary[sentence.words[$0]] : 0 } })
    }

    func step(_ sentences: [Sentence]) throws -> Float {
        let moods = bytes(sentences.flatMap { sentence in Mood.allCases.map { $0 == sentence.mood ? Float(1) : 0 } })
        var outcome = Result<Float, any Error>.success(.nan)
        training.execute(inputsData: ["words": numbers(sentences)], lossLabelsData: ["mood": moods], lossLabelWeightsData: nil, batchSize: 0, options: [.synchronous]) { loss, error, _ in
            outcome = error.map { .failure($0) } ?? .success(loss!.data!.floats[0])
        }
        return try outcome.get()
    }

    func moods(of sentences: [Sentence]) throws -> (scores: [Float], moods: [Mood]) {
        training.synchronizeUpdates()
        for graph in [reading, deciding] { graph.compile(device: .cpu()) }
        reading.execute(inputsData: ["words": numbers(sentences)], batchSize: 0, options: [.synchronous])
        deciding.execute(inputsData: [:], batchSize: 0, options: [.synchronous])
        let scores = answer.data!.floats
        return (scores, stride(from: 0, to: scores.count, by: 2).map { scores[$0] > scores[$0 + 1] ? .good : .bad })
    }

    var table: [Float] { embedding.weights.data!.floats }
}

let shape = try JSONDecoder().decode(Shape.self, from: Data(#"{"words": 4, "width": 3, "hidden": 4, "classes": 2, "rate": 0.0625}"#.utf8))
let sentences = [Sentence("a fine day", .good), Sentence("no sun again", .bad), Sentence("such a lovely song", .good), Sentence("rain and no song", .bad)]
let reader = Reader(shape, Vocabulary(sentences.flatMap(\.words)), batch: sentences.count)
for step in 0..<12 {
    let loss = try await reader.step(sentences)
    if step % 3 == 0 { show("loss \(step)", [loss]) }
}
let (scores, moods) = try await reader.moods(of: sentences)
show("scores", scores)
print(moods.map { "\($0)" }.joined(separator: " "), moods == sentences.map(\.mood))
show("table", await reader.table)
do { print(try await reader.step(Array(sentences.prefix(1)))) } catch { print("thrown", type(of: error), error.localizedDescription.contains("words")) }
