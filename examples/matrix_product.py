"""alpha * op(A) op(B) + C, after xrq-phys/MLCSimpleGemm; then the same product trained to solve a linear system.

// Swift                                                # Python, below
let product = MLCMatMulLayer(descriptor:                product = MLCMatMulLayer(descriptor=
    MLCMatMulDescriptor(alpha: alpha,                       MLCMatMulDescriptor(alpha=alpha,
        transposesX: true, transposesY: false)!)!               transposesX=True, transposesY=False))
let ab = graph.node(with: product, sources: [a, b])!    ab = graph.node(product, sources=[a, b])
let sum = graph.node(with:                              sum = graph.node(
    MLCArithmeticLayer(operation: .add),                    MLCArithmeticLayer(operation=MLCArithmeticOperation.add),
    sources: [ab, c])!                                      sources=[ab, c])
inference.execute(inputsData: ["a": dataA, ...],        inference.execute(inputsData={"a": data_a, ...},
    batchSize: 0, options: [.synchronous])                  batchSize=0, options=[MLCExecutionOptions.synchronous])

training.setTrainingTensorParameters(                   training.setTrainingTensorParameters(
    [MLCTensorParameter(tensor: x)])                        [MLCTensorParameter(tensor=x)])
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as pairs

import numpy as np

from mlc_torch import (
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCDataType,
    MLCDevice,
    MLCExecutionOptions,
    MLCGraph,
    MLCInferenceGraph,
    MLCLossLayer,
    MLCMatMulDescriptor,
    MLCMatMulLayer,
    MLCOptimizerDescriptor,
    MLCReductionType,
    MLCRegularizationType,
    MLCSGDOptimizer,
    MLCTensor,
    MLCTensorParameter,
    MLCTrainingGraph,
    unwrap,
)
from mlc_torch.commands.programs import chosen_device, options, progress, save_picture, tensor_data

SYNCHRONOUS = [MLCExecutionOptions.synchronous]


def sgemm(
    alpha: float, a: np.ndarray, b: np.ndarray, c: np.ndarray, transposed: tuple[bool, bool], device: MLCDevice
) -> np.ndarray:
    """alpha * op(a) op(b) + c, where op transposes if ``transposed`` says so."""
    matrices = {"a": a, "b": b, "c": c}
    sources = {name: MLCTensor(shape=of.shape, dataType=MLCDataType.float32) for name, of in matrices.items()}
    graph = MLCGraph()
    descriptor = MLCMatMulDescriptor(alpha=alpha, transposesX=transposed[0], transposesY=transposed[1])
    layer = unwrap(MLCMatMulLayer(descriptor=unwrap(descriptor)))
    ab = unwrap(graph.node(layer, sources=[sources["a"], sources["b"]]))
    total = unwrap(graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[ab, sources["c"]]))
    inference = MLCInferenceGraph(graphObjects=[graph])
    inference.addInputs(sources)
    inference.compile(options=[], device=device)
    # batchSize 0: the first dimension is no batch, take the shapes as they are.
    data = {name: tensor_data(of) for name, of in matrices.items()}
    inference.execute(inputsData=data, batchSize=0, options=SYNCHRONOUS)
    return total.numpy()


def solve(a: np.ndarray, b: np.ndarray, steps: int, device: MLCDevice) -> tuple[np.ndarray, list[float]]:
    """The matrix x with a x = b, found by training x, which is no layer's parameter; and the losses on the way."""
    source, label = MLCTensor(shape=a.shape), MLCTensor(shape=b.shape)
    x = MLCTensor(shape=[a.shape[1], b.shape[1]], fillWithData=0, dataType=MLCDataType.float32)
    graph = MLCGraph()
    graph.node(unwrap(MLCMatMulLayer(descriptor=MLCMatMulDescriptor())), sources=[source, x])
    # With curvatures between low and high, these are the momentum method's best rate and momentum.
    curvature = 2 * np.linalg.svd(a, compute_uv=False) ** 2
    low, high = np.sqrt(curvature.min()), np.sqrt(curvature.max())
    training = MLCTrainingGraph(
        graphObjects=[graph],
        lossLayer=MLCLossLayer.meanSquaredError(reductionType=MLCReductionType.sum, weight=1),
        optimizer=MLCSGDOptimizer(
            descriptor=MLCOptimizerDescriptor(
                learningRate=float((2 / (low + high)) ** 2),
                gradientRescale=1,
                regularizationType=MLCRegularizationType.none,
                regularizationScale=0,
            ),
            momentumScale=float(((high - low) / (high + low)) ** 2),
            usesNesterovMomentum=False,
        ),
    )
    training.setTrainingTensorParameters([MLCTensorParameter(tensor=x)])
    training.addInputs({"a": source}, lossLabels={"b": label})
    training.compile(options=[], device=device)
    losses: list[float] = []

    def keep_loss(loss, error, seconds):
        losses.append(float(loss.numpy()[0]))

    for _ in progress(steps, "step"):
        training.execute(
            inputsData={"a": tensor_data(a)},
            lossLabelsData={"b": tensor_data(b)},
            lossLabelWeightsData=None,
            batchSize=0,
            options=SYNCHRONOUS,
            completionHandler=keep_loss,
        )
    training.synchronizeUpdates()
    return x.numpy().copy(), losses


def main(given: Sequence[str] | None = None) -> dict[str, float]:
    """Gives the largest error of the products, and of the system's solution."""
    chosen = options(__doc__, 200, given)
    device = chosen_device(chosen.device)
    numbers = np.random.default_rng(0)

    worst = 0.0
    for transposed in pairs((False, True), repeat=2):
        a = numbers.normal(size=(128, 96)[:: -1 if transposed[0] else 1]).astype(np.float32)
        b = numbers.normal(size=(96, 64)[:: -1 if transposed[1] else 1]).astype(np.float32)
        c = numbers.normal(size=(128, 64)).astype(np.float32)
        found = sgemm(0.5, a, b, c, transposed, device)
        exact = 0.5 * (a.T if transposed[0] else a).astype(np.float64) @ (b.T if transposed[1] else b) + c
        error = float(np.abs(found - exact).max())
        worst = max(worst, error)
        print(f"0.5 {'Aᵀ' if transposed[0] else 'A '} {'Bᵀ' if transposed[1] else 'B '} + C: error {error:.1e}")

    a = np.eye(24, dtype=np.float32) + 0.1 * numbers.normal(size=(24, 24)).astype(np.float32)
    wanted = numbers.normal(size=(24, 8)).astype(np.float32)
    x, losses = solve(a, a @ wanted, chosen.epochs, device)
    error = float(np.abs(x - wanted).max())
    path = save_picture(chosen.out / "matrix_product.png", {"loss": losses}, "A X = B, solved by training X", "step")
    print(f"the loss is drawn in {path}")
    print(f"A X = B, solved by training X: largest error {error:.1e} after {chosen.epochs} steps")
    return {"product": worst, "solution": error, "first loss": losses[0], "last loss": losses[-1]}


if __name__ == "__main__":
    main()
