"""Who runs a workload: hand-written PyTorch, and the same program through mlc_torch.

How a call is written (``Workload.style``) is the same thought on both sides:

prepared       the data is wrapped beforehand, for a GPU in pinned memory; nobody looks at the result
fresh          the caller's array is wrapped anew for each call
handler        fresh, and the result (or the loss) is looked at: a completion handler there, ``.numpy()`` here
copied         fresh, and the result is copied out
outputs        fresh, and the result goes into the caller's array
async          fresh, awaited while the event loop goes on: the Async form there, ``asyncio.to_thread`` here
selectors      fresh, in the Objective-C spelling, with a handler that looks at the result
short          the last, smaller batch of an epoch
user gradient  phases, with a gradient that the program brings
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks import graphs
from benchmarks.workloads import BATCHES, Workload
from mlc_torch import (
    MLCAdamOptimizer,
    MLCAdamWOptimizer,
    MLCDataType,
    MLCDevice,
    MLCExecutionOptions,
    MLCInferenceGraph,
    MLCLossDescriptor,
    MLCLossLayer,
    MLCLossType,
    MLCOptimizerDescriptor,
    MLCReductionType,
    MLCRegularizationType,
    MLCRMSPropOptimizer,
    MLCSGDOptimizer,
    MLCTensor,
    MLCTensorData,
    MLCTensorParameter,
    MLCTrainingGraph,
    unwrap,
)

HAND_WRITTEN, ONE_CALL, DETERMINISTIC = "hand-written", "mlc_torch, one call", "mlc_torch, deterministic"
"""What the main contenders are called in every report."""

_OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "adam": (torch.optim.Adam, {"lr": 1e-3}),
    "amsgrad": (torch.optim.Adam, {"lr": 1e-3, "amsgrad": True}),
    "adamw": (torch.optim.AdamW, {"lr": 1e-3, "weight_decay": 0.01}),
    "sgd": (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}),
    "sgd plain": (torch.optim.SGD, {"lr": 0.01}),
    "nesterov": (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9, "nesterov": True}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 1e-3, "alpha": 0.99, "eps": 1e-8}),
    "rmsprop centered": (
        torch.optim.RMSprop,
        {"lr": 1e-3, "alpha": 0.99, "eps": 1e-8, "centered": True, "momentum": 0.9},
    ),
}
_LOSSES = {
    "absolute": (F.l1_loss, MLCLossType.meanAbsoluteError),
    "squared": (F.mse_loss, MLCLossType.meanSquaredError),
    "huber": (F.huber_loss, MLCLossType.huber),
}


class HandWritten:
    """A loop as the PyTorch documentation teaches it."""

    def __init__(
        self, workload: Workload, device: torch.device, *, fused: bool = False, compiled: bool = False
    ) -> None:
        self.workload, self.device = workload, device
        self.network = workload.module(device)
        self.batch = _samples(workload)
        self.arrays = [workload.inputs(n) for n in range(BATCHES)]
        self.labels = [self._host(workload.labels(n)) for n in range(BATCHES)]
        self.prepared = [[self._host(a) for a in arrays] for arrays in self.arrays]
        call = self._loss if workload.trains else self.network
        self.call = torch.compile(call) if compiled else call
        if workload.trains:
            made, settings = _OPTIMIZERS[workload.optimizer]
            self.optimizer = made(self.network.parameters(), **settings, **({"fused": True} if fused else {}))
        if workload.style == "outputs":
            with torch.no_grad():
                self.out = np.empty(tuple(self.network(*self._feeds(0)).shape), np.float32)
        if workload.style == "user gradient":
            self.gradient = self._host(_user_gradient(workload))
        self.step: Callable[[int], Any] = self._chosen()

    def _host(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(pinned(array, self.device))

    def _feeds(self, number: int) -> list[torch.Tensor]:
        if self.workload.style == "prepared":
            sources = self.prepared[number % BATCHES]
        else:
            sources = [torch.from_numpy(a) for a in self.arrays[number % BATCHES]]
        if self.workload.style == "short":
            sources = [s[: self.batch] for s in sources]
        return [s.to(self.device, non_blocking=True) for s in sources]

    def _loss(self, y: torch.Tensor, *sources: torch.Tensor) -> torch.Tensor:
        result = self.network(*sources)
        return F.cross_entropy(result, y) if self.workload.classes else _LOSSES[self.workload.loss][0](result, y)

    def _chosen(self) -> Callable[[int], Any]:
        style = self.workload.style
        if self.workload.trains:
            if style == "user gradient":
                return self._by_user_gradient
            return (lambda n: self._train(n).item()) if style in ("handler", "selectors") else self._train
        if style in ("handler", "selectors"):
            return lambda n: self._infer(n).cpu().numpy()
        if style == "copied":
            return lambda n: self._infer(n).cpu().numpy().copy()
        return self._into_array if style == "outputs" else self._infer

    def _infer(self, number: int) -> torch.Tensor:
        with torch.no_grad():
            return self.call(*self._feeds(number))

    def _into_array(self, number: int) -> np.ndarray:
        np.copyto(self.out, self._infer(number).cpu().numpy())
        return self.out

    def _train(self, number: int) -> torch.Tensor:
        y = self.labels[number % BATCHES][: self.batch].to(self.device, non_blocking=True)
        self.optimizer.zero_grad()
        loss = self.call(y, *self._feeds(number))
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def _by_user_gradient(self, number: int) -> torch.Tensor:
        self.optimizer.zero_grad()
        result = self.network(*self._feeds(number))
        result.backward(self.gradient.to(self.device, non_blocking=True))
        self.optimizer.step()
        return result.detach()

    def run(self, steps: int) -> None:
        if self.workload.style != "async":
            for number in range(steps):
                self.step(number)
            return

        async def all_() -> None:
            for number in range(steps):
                await asyncio.to_thread(self._infer, number)

        asyncio.run(all_())

    def values(self, number: int) -> np.ndarray:
        """What a step gives, as numbers."""
        made = self.step(number)
        made = made.detach().cpu().numpy() if isinstance(made, torch.Tensor) else np.asarray(made, np.float32)
        return np.array(made, np.float32).ravel()


class MLCompute:
    """The same through mlc_torch: one call a step, or three phases."""

    def __init__(
        self, workload: Workload, device: torch.device, *, phases: bool = False, inductor: bool = False
    ) -> None:
        self.workload, self.phases = workload, phases or workload.style == "user gradient"
        self.device = unwrap(MLCDevice.cpu() if device.type == "cpu" else MLCDevice.gpu())
        build = graphs.Builder()
        self.batch = _samples(workload)
        self.arrays = [workload.inputs(n) for n in range(BATCHES)]
        self.inputs = {
            name: unwrap(MLCTensor(shape=list(a.shape), dataType=_TYPES[a.dtype.name]))
            for name, a in zip("xy", self.arrays[0], strict=False)
        }
        tensors = list(self.inputs.values())
        # Whoever is not held has no memory: a graph computes into it only as long as somebody can look.
        self.result = workload.build(build, tensors[0], workload.module(torch.device("cpu")), *tensors[1:])
        self.prepared = [self._wrapped([pinned(a, device) for a in arrays]) for arrays in self.arrays]
        self.seen: Any = None
        self.how = [MLCExecutionOptions.synchronous] if workload.style in ("handler", "copied", "selectors") else []
        more = {"use_inductor": True} if inductor else {}
        if workload.trains:
            self._make_training(build, more, device)
        else:
            self._make_inference(build, more)
        self.step: Callable[[int], Any] = self._chosen()

    def _make_inference(self, build: graphs.Builder, more: dict[str, Any]) -> None:
        self.graph: Any = MLCInferenceGraph(graphObjects=[build.graph])
        self.graph.addInputs(self.inputs)
        if self.workload.style == "outputs":
            self.graph.addOutputs({"result": self.result})
            self.out = np.empty(self.result.descriptor.shape, np.float32)
        assert self.graph.compile(options=[], device=self.device, **more)

    def _make_training(self, build: graphs.Builder, more: dict[str, Any], device: torch.device) -> None:
        workload = self.workload
        labels = [workload.labels(n) for n in range(BATCHES)]
        self.labels = [one_hot(y, workload.classes) if workload.classes else y for y in labels]
        by_user = workload.style == "user gradient"
        self.graph = MLCTrainingGraph(
            graphObjects=[build.graph],
            lossLayer=None if by_user else self._loss(),
            optimizer=_optimizer(workload.optimizer),
        )
        self.y = unwrap(MLCTensor(shape=list(self.labels[0].shape)))
        self.graph.addInputs(self.inputs, lossLabels=None if by_user else {"label": self.y})
        self.graph.setTrainingTensorParameters([MLCTensorParameter(tensor=t) for t in build.trained])
        if by_user:
            self.gradient = unwrap(self.graph.allocateUserGradient(for_=self.result))
            self.gradient_data = _data(_user_gradient(workload))
        self.bound = self.inputs | ({"gradient": self.gradient} if by_user else {"label": self.y})
        assert self.graph.compile(options=[], device=self.device, **more)
        self.prepared_labels = [{"label": _data(pinned(y, device))} for y in self.labels]
        self.prepared_bound = [x | y for x, y in zip(self.prepared, self.prepared_labels, strict=True)]
        if not by_user:
            del self.result  # only what somebody holds is kept

    def _loss(self) -> MLCLossLayer:
        kind = MLCLossType.softmaxCrossEntropy if self.workload.classes else _LOSSES[self.workload.loss][1]
        return MLCLossLayer(descriptor=MLCLossDescriptor(type=kind, reductionType=MLCReductionType.mean))

    def _wrapped(self, arrays: Sequence[np.ndarray]) -> dict[str, MLCTensorData]:
        return dict(zip(self.inputs, map(_data, arrays), strict=True))

    def _feeds(self, number: int) -> dict[str, MLCTensorData]:
        fresh = self.workload.style not in ("prepared", "short")
        return self._wrapped(self.arrays[number % BATCHES]) if fresh else self.prepared[number % BATCHES]

    def _look(self, result: MLCTensor, error: Any, seconds: float) -> None:
        self.seen = np.frombuffer(result.data, np.float32)

    def _copy(self, result: MLCTensor, error: Any, seconds: float) -> None:
        self.seen = np.frombuffer(result.data, np.float32).copy()

    def _chosen(self) -> Callable[[int], Any]:
        style = self.workload.style
        if self.workload.trains:
            if self.phases:
                return self._train_by_phases
            return {"handler": self._train_and_look, "selectors": self._train_by_selectors}.get(style, self._train)
        return {
            "handler": self._infer_and_look,
            "copied": self._infer_and_copy,
            "outputs": self._infer_into_array,
            "selectors": self._infer_by_selectors,
        }.get(style, self._infer)

    def _infer(self, number: int) -> Any:
        return self.graph.execute(inputsData=self._feeds(number), batchSize=self.batch, options=[])

    def _infer_and_look(self, number: int) -> Any:
        return self.graph.execute(
            inputsData=self._feeds(number), batchSize=self.batch, options=self.how, completionHandler=self._look
        )

    def _infer_and_copy(self, number: int) -> Any:
        return self.graph.execute(
            inputsData=self._feeds(number), batchSize=self.batch, options=self.how, completionHandler=self._copy
        )

    def _infer_into_array(self, number: int) -> Any:
        return self.graph.execute(
            inputsData=self._feeds(number), outputsData={"result": _data(self.out)}, batchSize=self.batch, options=[]
        )

    def _infer_by_selectors(self, number: int) -> Any:
        return self.graph.executeWithInputsData_batchSize_options_completionHandler_(
            self._feeds(number), self.batch, self.how, self._look
        )

    def _label_data(self, number: int) -> dict[str, MLCTensorData]:
        fresh = self.workload.style not in ("prepared", "short")
        return {"label": _data(self.labels[number % BATCHES])} if fresh else self.prepared_labels[number % BATCHES]

    def _train(self, number: int) -> Any:
        return self.graph.execute(
            inputsData=self._feeds(number),
            lossLabelsData=self._label_data(number),
            lossLabelWeightsData=None,
            batchSize=self.batch,
            options=[],
        )

    def _train_and_look(self, number: int, options: Any = None) -> Any:
        return self.graph.execute(
            inputsData=self._feeds(number),
            lossLabelsData=self._label_data(number),
            lossLabelWeightsData=None,
            batchSize=self.batch,
            options=self.how if options is None else options,
            completionHandler=self._look,
        )

    def _train_by_selectors(self, number: int) -> Any:
        selector = (
            self.graph.executeWithInputsData_lossLabelsData_lossLabelWeightsData_batchSize_options_completionHandler_
        )
        return selector(self._feeds(number), self._label_data(number), None, self.batch, self.how, self._look)

    def _train_by_phases(self, number: int) -> Any:
        if self.workload.style == "user gradient":
            given = self._feeds(number) | {"gradient": self.gradient_data}
        elif self.workload.style == "prepared":
            given = self.prepared_bound[number % BATCHES]
        else:
            given = self._feeds(number) | self._label_data(number)
        self.graph.bindAndWriteData(given, forInputs=self.bound, to=self.device, synchronous=False)
        self.graph.executeForward(batchSize=self.batch, options=[])
        self.graph.executeGradient(batchSize=self.batch, options=[])
        return self.graph.executeOptimizerUpdate(options=[])

    def run(self, steps: int) -> None:
        if self.workload.style != "async":
            for number in range(steps):
                self.step(number)
            return

        async def all_() -> None:
            for number in range(steps):
                await self.graph.executeAsync(inputsData=self._feeds(number), batchSize=self.batch)

        asyncio.run(all_())

    def values(self, number: int) -> np.ndarray:
        """What a step gives, as numbers: the loss, or the result."""
        synchronous = [MLCExecutionOptions.synchronous]
        if self.workload.style == "async":
            asyncio.run(self.graph.executeAsync(inputsData=self._feeds(number), batchSize=self.batch))
        elif self.workload.trains and not self.phases:
            assert self._train_and_look(number, synchronous)
            return np.array(self.seen, np.float32).ravel()
        else:
            assert self.step(number)
        if self.workload.style == "outputs" and self.device.type.name == "cpu":
            return self.out.ravel().copy()
        count = self.batch * int(np.prod(self.result.descriptor.shape[1:]))
        self.result.synchronizeData()
        return np.frombuffer(self.result.data, np.float32)[:count].copy()


_TYPES = {"float32": MLCDataType.float32, "int64": MLCDataType.int64}


def _data(array: np.ndarray) -> MLCTensorData:
    return MLCTensorData(bytesNoCopy=array, length=array.nbytes)


def pinned(array: np.ndarray, device: torch.device) -> np.ndarray:
    """The array where ``device`` copies from fastest."""
    return torch.from_numpy(array).pin_memory().numpy() if device.type == "cuda" else array


def _samples(workload: Workload) -> int:
    return workload.shape[0] * 3 // 4 if workload.style == "short" else workload.shape[0]


def _user_gradient(workload: Workload) -> np.ndarray:
    return np.random.default_rng(3).standard_normal((workload.shape[0], workload.classes), np.float32)


def one_hot(labels: np.ndarray, classes: int) -> np.ndarray:
    return np.eye(classes, dtype=np.float32)[labels]


def _optimizer(name: str) -> Any:
    made, settings = _OPTIMIZERS[name]
    decay = settings.get("weight_decay", 0.0)
    descriptor = MLCOptimizerDescriptor(
        learningRate=settings["lr"],
        gradientRescale=1.0,
        regularizationType=MLCRegularizationType.l2 if decay else MLCRegularizationType.none,
        regularizationScale=decay,
    )
    if made is torch.optim.SGD:
        return MLCSGDOptimizer(
            descriptor=descriptor,
            momentumScale=settings.get("momentum", 0.0),
            usesNesterovMomentum=settings.get("nesterov", False),
        )
    if made is torch.optim.RMSprop:
        return MLCRMSPropOptimizer(
            descriptor=descriptor,
            momentumScale=settings.get("momentum", 0.0),
            alpha=settings["alpha"],
            epsilon=settings["eps"],
            isCentered=settings.get("centered", False),
        )
    if made is torch.optim.AdamW:
        return MLCAdamWOptimizer(descriptor=descriptor)
    more = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "usesAMSGrad": True, "timeStep": 1}
    return MLCAdamOptimizer(descriptor=descriptor, **(more if settings.get("amsgrad") else {}))
