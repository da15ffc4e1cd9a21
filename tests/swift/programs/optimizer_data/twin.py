from helpers import *


class Run:
    def __init__(self, saved, weights, timeStep):
        self.x, self.y = MLCTensor(shape=[2, 3]), MLCTensor(shape=[2, 1])
        self.layer = dense(3, 1, 7)
        graph = MLCGraph()
        graph.node(self.layer, source=self.x)
        self.training = MLCTrainingGraph(
            graphObjects=[graph],
            lossLayer=MLCLossLayer.meanSquaredError(reductionType=MLCReductionType.mean, weight=1),
            optimizer=MLCAdamOptimizer(
                descriptor=settings(0.1),
                beta1=float(np.float32(0.9)),
                beta2=float(np.float32(0.99)),
                epsilon=float(np.float32(1e-7)),
                timeStep=timeStep,
            ),
        )
        self.training.addInputs({"x": self.x}, lossLabels={"y": self.y})
        self.states = []
        for i, parameter in enumerate([self.layer.weights, self.layer.biases]):
            count = math.prod(parameter.descriptor.shape)
            given = [saved[2 * i + k].copy() if saved else np.zeros(count, np.float32) for k in range(2)]
            self.training.bindOptimizerData([memory(g) for g in given], deviceData=None, with_=parameter)
            self.states += given
            if weights:
                parameter.bindAndWriteData(memory(weights[i].copy()), to=MLCDevice.cpu())
        self.training.compile(device=MLCDevice.cpu())

    def steps(self, steps):
        for step in steps:
            self.training.execute(
                inputsData={"x": memory(spread(6, step))},
                lossLabelsData={"y": memory(spread(2, 40 + step))},
                lossLabelWeightsData=None,
                batchSize=2,
                options=[MLCExecutionOptions.synchronous],
                completionHandler=lambda loss, error, seconds, step=step: show(f"loss {step}", floats(loss.data)),
            )
        self.training.synchronizeUpdates()

    def weights(self):
        return [floats(self.layer.weights.data).copy(), floats(self.layer.biases.data).copy()]


whole = Run(None, None, 1)
whole.steps(range(4))
checkpoint, weights = [state.copy() for state in whole.states], whole.weights()
for state in checkpoint:
    show("state", state)
whole.steps(range(4, 7))
resumed = Run(checkpoint, weights, 5)
resumed.steps(range(4, 7))
for a, b in zip(whole.weights(), resumed.weights(), strict=True):
    show("weights", a)
    print(str(bool((a == b).all())).lower())
