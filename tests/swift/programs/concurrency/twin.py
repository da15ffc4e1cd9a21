import asyncio

from helpers import *

x, y = MLCTensor(shape=[2, 3]), MLCTensor(shape=[2, 2])
graph = MLCGraph()
layer = dense(3, 2, 5)
graph.node(layer, source=x)
training = MLCTrainingGraph(
    graphObjects=[graph],
    lossLayer=MLCLossLayer.meanSquaredError(reductionType=MLCReductionType.mean, weight=1),
    optimizer=MLCSGDOptimizer(descriptor=settings(0.25)),
)
training.addInputs({"x": x}, lossLabels={"y": y})
training.compile(device=MLCDevice.cpu())


async def train():
    for step in range(3):
        for name, tensor, values in (("x", x, spread(6, step)), ("y", y, spread(4, 20 + step))):
            training.bindAndWriteData(
                {name: memory(values)}, forInputs={name: tensor}, to=MLCDevice.cpu(), batchSize=2, synchronous=True
            )
        loss, seconds = await training.executeForwardAsync(batchSize=2)
        backward = await training.executeGradientAsync(batchSize=2)
        update = await training.executeOptimizerUpdateAsync()
        show("loss", floats(loss.data))
        print(*(str(t > 0).lower() for t in (seconds, backward, update)))


async def answer(seed):
    source, own = MLCTensor(shape=[2, 3]), MLCGraph()
    own.node(dense(3, 2, seed), source=source)
    inference = MLCInferenceGraph(graphObjects=[own])
    inference.addInputs({"x": source})
    inference.compile(device=MLCDevice.cpu())
    result, _ = await inference.executeAsync(inputsData={"x": memory(spread(6, seed))}, batchSize=2)
    return floats(result.data)


async def main():
    await train()
    try:
        await training.executeGradientAsync(batchSize=2)
    except MLCRefusal as why:
        print("thrown", str("executeForward" in str(why)).lower())
    show("weights", floats(layer.weights.data))
    for seed, values in enumerate(await asyncio.gather(*map(answer, range(8)))):
        show(f"answer {seed}", values)


asyncio.run(main())
