from helpers import *

S = [MLCExecutionOptions.synchronous]
WORDS, WIDTH, HIDDEN, CLASSES, RATE = 4, 3, 4, 2, 0.0625
SENTENCES = [("a fine day", 0), ("no sun again", 1), ("such a lovely song", 0), ("rain and no song", 1)]
MOODS = ["good", "bad"]
tokens = sorted({word for text, _ in SENTENCES for word in text.split()})
vocabulary = {word: i + 1 for i, word in enumerate(tokens)}
batch = len(SENTENCES)


def numbers(sentences):
    rows = [[vocabulary[word] for word in text.split()] for text, _ in sentences]
    return np.array([row + [0] * (WORDS - len(row)) for row in rows], np.int32)


words = MLCTensor(shape=[batch, WORDS], dataType=MLCDataType.int32)
embedding = MLCEmbeddingLayer(
    descriptor=MLCEmbeddingDescriptor(embeddingCount=len(tokens) + 1, embeddingDimension=WIDTH),
    weights=filled([len(tokens) + 1, WIDTH], 1),
)
lstm = MLCLSTMLayer(
    descriptor=MLCLSTMDescriptor(
        inputSize=WIDTH,
        hiddenSize=HIDDEN,
        layerCount=1,
        usesBiases=True,
        batchFirst=True,
        isBidirectional=False,
        returnsSequences=False,
        dropout=0,
    ),
    inputWeights=[filled([1, WIDTH * HIDDEN, 1, 1], 10 + i) for i in range(4)],
    hiddenWeights=[filled([1, HIDDEN * HIDDEN, 1, 1], 20 + i) for i in range(4)],
    biases=[filled([1, HIDDEN, 1, 1], 30 + i) for i in range(4)],
)
lower, upper = MLCGraph(), MLCGraph()
states = lower.node(lstm, source=lower.node(embedding, source=words))
answer = upper.node(dense(HIDDEN, CLASSES, 40), source=upper.reshape(shape=[batch, HIDDEN], source=states))
training = MLCTrainingGraph(
    graphObjects=[lower, upper],
    lossLayer=MLCLossLayer(
        descriptor=MLCLossDescriptor(type=MLCLossType.softmaxCrossEntropy, reductionType=MLCReductionType.mean)
    ),
    optimizer=MLCAdamOptimizer(descriptor=settings(RATE)),
)
training.addInputs({"words": words}, lossLabels={"mood": MLCTensor(shape=[batch, CLASSES])})
training.compile(device=MLCDevice.cpu())
reading, deciding = MLCInferenceGraph(graphObjects=[lower]), MLCInferenceGraph(graphObjects=[upper])
print(
    str(reading.addInputs({"words": words})).lower(),
    str(reading.link(with_=[deciding])).lower(),
    states.descriptor.shape,
    answer.descriptor.shape,
)


def step(sentences):
    answers = []
    training.execute(
        inputsData={"words": memory(numbers(sentences))},
        lossLabelsData={"mood": memory(np.eye(2, dtype=np.float32)[[mood for _, mood in sentences]])},
        lossLabelWeightsData=None,
        batchSize=0,
        options=S,
        completionHandler=lambda loss, error, seconds: answers.append(error or floats(loss.data)[0]),
    )
    return answers[0]


for i in range(12):
    loss = step(SENTENCES)
    if i % 3 == 0:
        show(f"loss {i}", [loss])
training.synchronizeUpdates()
for graph in (reading, deciding):
    graph.compile(device=MLCDevice.cpu())
reading.execute(inputsData={"words": memory(numbers(SENTENCES))}, batchSize=0, options=S)
deciding.execute(inputsData={}, batchSize=0, options=S)
scores = floats(answer.data)
show("scores", scores)
moods = [int(a <= b) for a, b in scores.reshape(-1, 2)]
print(" ".join(MOODS[mood] for mood in moods), str(moods == [mood for _, mood in SENTENCES]).lower())
show("table", floats(embedding.weights.data))
print("thrown", "NSError", str("words" in str(step(SENTENCES[:1]))).lower())
