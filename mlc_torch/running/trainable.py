"""Building and compiling a training graph: its loss, its optimizer, what it trains and what its plan must give."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from mlc_torch.device import MLCDevice
from mlc_torch.engine.mode import Mode, Phase
from mlc_torch.engine.session import Session
from mlc_torch.enums import MLCGraphCompilationOptions as Compile
from mlc_torch.graph.locks import locked
from mlc_torch.layers import MLCLayer, MLCLossLayer
from mlc_torch.nodes.feeds import LINKED
from mlc_torch.nodes.loss_node import no_labels, own_loss_node
from mlc_torch.nodes.node import Node, own_states, producers, unique_layers
from mlc_torch.optimizers import MLCOptimizer
from mlc_torch.optimizers.base import check_rule
from mlc_torch.refusals import MLCRefusal, refuse
from mlc_torch.running.gradients import GradientGraph
from mlc_torch.running.midst import refuse_in_the_midst
from mlc_torch.running.planner import PlanRequest, moved_feeds, updatable
from mlc_torch.running.road import Work
from mlc_torch.running.signatures import TENSORS
from mlc_torch.running.state import GradientState, Variant
from mlc_torch.running.training_warnings import (
    NO_PROBABILITIES,
    may_learn,
    probabilities_of,
    warn_computed,
    warn_half_trained,
    warn_of_loss,
    warn_of_spare_state,
    warn_of_values,
    warn_unmade,
    warn_unread,
    warn_unrelated,
    warn_untrained,
)
from mlc_torch.spelling import declare, objc_only, prop
from mlc_torch.tensor import MLCTensorParameter, TensorState
from mlc_torch.tensor.optimizer_state import refuse_too_few

if TYPE_CHECKING:
    from mlc_torch.ranks import Ranks

_WHOLE, _PREDICT = Variant.whole, Variant.predict


class TrainableGraph(GradientGraph):
    """What a training graph is before it runs."""

    _trains = True
    _optimizer: MLCOptimizer | None
    _lossLayer: MLCLayer | None
    optimizer = prop("MLCOptimizer?", "The optimizer, or ``None``.")

    @declare(
        "init(graphObjects: [MLCGraph], lossLayer: MLCLayer?, optimizer: MLCOptimizer?)",
        "graphWithGraphObjects:lossLayer:optimizer:",
    )
    @objc_only("+ trainingGraphWithGraphObjects: [MLCGraph], lossLayer: MLCLayer?, optimizer: MLCOptimizer? -> Self")
    def _create(cls, graphObjects, lossLayer, optimizer):
        """A training graph over the layers of these graphs; loss layer and optimizer may be ``None``."""
        if optimizer is not None:
            check_rule(optimizer)
        made = cls._over(graphObjects, lossLayer=lossLayer, optimizer=optimizer, steering=GradientState())
        if lossLayer is not None:
            owner = lossLayer._belongs_to()
            if owner is not None:
                refuse(f"the loss layer {lossLayer.label!r} belongs to another graph; a layer serves one graph")
            lossLayer._enter(made, len(made.layers))
        return made

    # Building

    def _all_nodes(self) -> list[Node]:
        nodes = super()._all_nodes()
        try:
            return self._with_own_loss(nodes)
        except MLCRefusal:
            return nodes  # a loss that does not fit its predictions: compile says so

    def _with_own_loss(self, nodes: list[Node]) -> list[Node]:
        if self._lossLayer is None:
            return nodes
        declared = self._declared
        own = own_loss_node(self._lossLayer, nodes, declared.labels, declared.label_weights, self._runs.loss_results)
        return nodes if own is None else [*nodes, own]

    def _is_loss(self, layer: MLCLayer) -> bool:
        return layer is self._lossLayer or super()._is_loss(layer)

    @prop("[MLCLayer]")
    def layers(self):
        """Each layer once, in the order of addition; the loss layer is the last."""
        own = [] if self._lossLayer is None else [self._lossLayer]
        return [x for x in unique_layers(super()._all_nodes()) if x is not self._lossLayer] + own

    @declare(f"addInputs(_ inputs: {TENSORS}, lossLabels: {TENSORS}?) -> Bool", "addInputs:lossLabels:")
    @declare(
        f"addInputs(_ inputs: {TENSORS}, lossLabels: {TENSORS}?, lossLabelWeights: {TENSORS}?) -> Bool",
        "addInputs:lossLabels:lossLabelWeights:",
    )
    def _add_inputs(self, inputs, lossLabels, lossLabelWeights=None):
        """Name the tensors that data is given for, and those that hold the labels and weights of losses."""
        return self._declare_inputs(inputs, lossLabels, lossLabelWeights)

    @declare("setTrainingTensorParameters(_ parameters: [MLCTensorParameter]) -> Bool", "setTrainingTensorParameters:")
    @locked
    def _set_training_tensors(self, parameters):
        """Tensors that are trained although they are no layer's parameters, from the next compile on. One that is a declared
        input or label starts with what is bound to it, and ``execute`` takes no data for it."""
        for cell in (p._tensor._cell for p in parameters):
            if not cell.dtype.is_floating_point:
                kind = cell.descriptor.dataType.name
                refuse(f"tensor {cell.label!r} holds {kind}; only floating-point numbers can be trained")
        self._steering.to_train = list(parameters)
        return True

    @declare(
        "bindOptimizerData(_ data: [MLCTensorData], deviceData: [MLCTensorOptimizerDeviceData]?, "
        "with tensor: MLCTensor) -> Bool",
        "bindOptimizerData:deviceData:withTensor:",
    )
    @locked
    def _bind_optimizer_data(self, data, deviceData, tensor):
        """Give the optimizer the memory that holds its state for a tensor."""
        self._raise_late_failure()
        if self._compiled is None or self._optimizer is None:
            return tensor._bind_optimizer(data, deviceData)  # compile looks at how many there are
        refuse_too_few(tensor.label, len(data), len(self._optimizer._state_names()))
        trained = updatable(self._planned_nodes(), self._trained_tensors())
        bound = tensor._bind_state(data, deviceData, self._optimizer if id(tensor._cell) in trained else None)
        warn_of_spare_state(self._runs.warned, self._optimizer, [tensor._cell])
        return bound

    # Compiling

    def _compile_for(self, device: MLCDevice, *given: Any) -> None:
        computed = producers(self._all_nodes())
        for parameter in self._steering.to_train:
            if (node := computed.get(id(parameter._tensor._cell))) is not None:
                refuse(
                    f"setTrainingTensorParameters names {parameter._tensor.label!r}, which layer {node.layer.label!r} computes; "
                    "only a tensor that holds data of its own can be trained"
                )
        super()._compile_for(device, *given)

    def _take_up(self, device: MLCDevice) -> None:
        steering = self._steering
        steering.stopped, steering.trained = list(steering.to_stop), list(steering.to_train)
        steering.trained_cells = frozenset(id(p._tensor._cell) for p in steering.trained)
        self._runs.last = None
        for parameter in steering.trained:
            parameter._tensor._cell.place(device, writable=True)

    @declare("compileOptimizer(_ optimizer: MLCOptimizer) -> Bool", "compileOptimizer:")
    @locked
    def _compile_optimizer(self, optimizer):
        """Use ``optimizer`` from now on; one that is new starts without state unless some is bound."""
        self._raise_late_failure()
        refuse_in_the_midst(self)
        if self._compiled is None:
            refuse("compile the graph before its optimizer")
        check_rule(optimizer)
        self._optimizer = optimizer
        self._changed()
        return True

    @declare("link(with graphs: [MLCTrainingGraph]) -> Bool", "linkWithGraphs:")
    def _link(self, graphs):
        """Tensors shared with these graphs carry values forward and gradients backward."""
        for graph in (self, *graphs):
            if graph._compiled is None or not graph._compiled.options & Compile.linkGraphs:
                refuse("every graph must be compiled with the option linkGraphs before it is linked")
        return self._link_with(graphs)

    def _nodes_to_run(self, nodes: list[Node], variant: Variant = _WHOLE) -> list[Node]:
        nodes = self._with_own_loss(nodes)
        if variant is _PREDICT:
            return [n for n in nodes if not self._is_loss(n.layer)]
        return nodes

    def _missing(self, variant: Variant = _WHOLE) -> str | None:
        nodes = self._planned_nodes(variant)
        for node in nodes:
            if isinstance(node.layer, MLCLossLayer) and len(node.reads) == 1:
                return no_labels(node, nodes, self._declared.labels)
        return super()._missing(variant)

    def _fed(self, variant: Variant):
        fed = super()._fed(variant)
        return [(k, cells if k in ("input", LINKED) else {}) for k, cells in fed] if variant is _PREDICT else fed

    def _plan_request(self, nodes: list[Node], options: Compile, variant: Variant) -> PlanRequest:
        request = super()._plan_request(nodes, options, variant)
        if variant is _PREDICT:
            return request
        steering = self._steering
        asked = list(steering.watched.values())
        inputs = list(self._declared.inputs.values()) if options & Compile.computeAllGradients else []
        if options & Compile.debugLayers:
            asked += [c for n in nodes if n.layer._isDebuggingEnabled for c in (*n.sources, *n.results)]
        imported = [c for n in nodes for c in n.reads if id(c) in request.linked]
        request.losses = [n.results[0] for n in nodes if self._is_loss(n.layer)]
        request.readable += request.losses  # step, evaluate and fit tell their sum
        request.injected = [cell for cell, _ in steering.from_user.values()]
        request.exported = self._exported(nodes)
        request.wanted = [c for c in (*inputs, *asked, *imported) if c.dtype.is_floating_point]
        request.stopped = steering.stopped
        request.trained_tensors = self._trained_tensors()
        if not self._runs.looked:
            request.readable += probabilities_of(nodes)
        for cell, hook in steering.hooks:
            request.hooks[id(cell)] = (*request.hooks.get(id(cell), ()), hook)
        request.trains = True
        return request

    def _trained_tensors(self) -> list[tuple[TensorState, bool]]:
        """Tensors that are trained for themselves, and whether they are updated."""
        return [(p._tensor._cell, p._isUpdatable) for p in self._steering.trained]

    def _parameters_to_train(self) -> list[MLCTensorParameter]:
        return self._steering.to_train

    def _update_rule(self) -> MLCOptimizer | None:
        return self._optimizer

    def _result_cell(self, nodes: list[Node]) -> TensorState:
        """The own loss, else the last loss added, else the last node."""
        losses = [n for n in nodes if self._is_loss(n.layer)]
        return (losses or nodes)[-1].results[0]

    def _rule_for(self, variant: Variant) -> MLCOptimizer | None:
        return None if variant is _PREDICT else self._optimizer

    # Together with other processes

    def _ranks(self, variant: Variant) -> Ranks | None:
        return None if variant is _PREDICT or self._device is None else self._device._ranks

    def _meeting(self, device: MLCDevice) -> AbstractContextManager[None]:
        self._runs.warned = set()
        if device._ranks is None:
            return super()._meeting(device)
        from mlc_torch.running.sharing import meeting

        return meeting(self, device._ranks)

    def _together(self, work: Work) -> Work:
        from mlc_torch.running.sharing import together

        return together(work)

    def _prepare(self, session: Session, nodes: list[Node], variant: Variant) -> None:
        if variant is _PREDICT:
            return
        own = {id(u.torch) for layer in unique_layers(nodes) if layer._module_is_given for u in layer._parameter_uses}
        trained = enumerate(session.plan.trained)
        self._steering.given = [(place, use) for place, t in trained for use in t.uses if id(use) in own]
        self._steering.moved = moved_feeds(session.plan, self._declared.fed()) if self._optimizer is not None else []
        if session.updater is not None:
            session.updater.when_idle = partial(warn_untrained, self._runs.warned, [], learns=False)
        learns = self._optimizer is None or may_learn(session.plan, nodes, self._steering.stopped)
        warn_untrained(self._runs.warned, nodes, learns)
        warn_unmade(self._runs.warned, nodes, self._declared.outputs, session.plan)
        warn_unread(self._runs.warned, nodes, self._declared.fed())
        warn_computed(self._runs.warned, nodes, self._declared.fed())
        warn_half_trained(self._runs.warned, nodes, session.plan.trained)
        warn_unrelated(self._runs.warned, nodes, self._steering)
        warn_of_spare_state(self._runs.warned, self._optimizer, [t.cell for t in session.plan.trained])
        session.prepare(Mode.train if session.differentiates else Mode.train_without_gradient)

    def _look_at_values(self, session: Session) -> None:
        """Once for each compile: what the values of a first run say."""
        self._runs.looked = True
        warn_of_values(self._runs.warned, self._planned_nodes(), session.value_of)

    def _look_at_result(self, value: torch.Tensor, phase: Phase | None = None) -> None:
        last = self._runs.last
        if last is not None and last.plan.losses and NO_PROBABILITIES not in self._runs.warned:  # which says why
            warn_of_loss(self._runs.warned, value, inferred=(phase or last.phase) is Phase.idle)

    # Reading back

    @declare("synchronizeUpdates()", "synchronizeUpdates")
    @locked
    def _synchronize_updates(self):
        """Bring trained weights, running statistics and trained tensors back into the caller's memory."""
        self._raise_late_failure()
        for layer in unique_layers(self._planned_nodes()):
            for cell in own_states(layer):
                cell.download()
        for parameter in self._steering.trained:
            parameter._tensor._cell.download()

    @prop("Int")
    def deviceMemorySize(self):
        """Bytes of results and their gradients; gradients and state of parameters as they come (evidence.md H.7)."""
        if self._compiled is None:
            return 0
        nodes = [n for n in self._planned_nodes() if n.layer is not self._lossLayer]
        total = 2 * sum(c.descriptor._nbytes for node in nodes for c in node.results)
        last = self._runs.last
        if last is not None:
            total += sum(g.nbytes for g in last.gradients if g is not None)
            if last.updater is not None and last.phase is Phase.updated:
                total += last.updater.state_bytes()
        return total
