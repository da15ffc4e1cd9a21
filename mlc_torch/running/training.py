"""``MLCTrainingGraph``: forward, gradient and optimizer update, together or one by one."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from mlc_torch.engine.session import Session
from mlc_torch.enums import MLCExecutionOptions as Run
from mlc_torch.enums import MLCGraphCompilationOptions as Compile
from mlc_torch.layers import MLCLayer, MLCLossLayer
from mlc_torch.nodes.feeding import LINKED, take
from mlc_torch.nodes.loss_node import own_loss_node
from mlc_torch.nodes.node import Node, reached, unique_layers
from mlc_torch.optimizers import MLCOptimizer
from mlc_torch.refusals import MLCRefusal, refuse
from mlc_torch.running.asynchronous import awaited, awaited_time
from mlc_torch.running.gradients import GradientGraph
from mlc_torch.running.planner import PlanRequest, updatable
from mlc_torch.running.quick import TRAIN, quick_ways
from mlc_torch.running.signatures import DATA, HANDLER, LABELS_DATA, OPTIONS, TENSORS, TIMED
from mlc_torch.running.untrained import VALUES_SEEN, probabilities_of, warn_of_values, warn_untrained
from mlc_torch.spelling import declare, has_quick_way, objc_only, prop
from mlc_torch.tensor import TensorState
from mlc_torch.tensor.state import newest_change

_SKIP, _BY_LAYER = Run.skipWritingInputDataToDevice.value, Run.perLayerProfiling.value
_INFERS = Run.forwardForInference.value

_turns = itertools.count(1)
"""In which order forward passes were run, over all graphs."""

PREDICT = "predict"
"""The variant of a training graph without its own loss, for a forward pass that is given no labels."""


class MLCTrainingGraph(GradientGraph):
    """Trains the parameters of the layers of its graph objects, and its own."""

    optimizer = prop("MLCOptimizer?")

    @declare(
        "init(graphObjects: [MLCGraph], lossLayer: MLCLayer?, optimizer: MLCOptimizer?)",
        "graphWithGraphObjects:lossLayer:optimizer:",
    )
    @objc_only("+ trainingGraphWithGraphObjects: [MLCGraph], lossLayer: MLCLayer?, optimizer: MLCOptimizer? -> Self")
    def _create(cls, graphObjects, lossLayer, optimizer):
        if optimizer is not None:
            _check_rule(optimizer)
        made = cls._over(
            graphObjects,
            lossLayer=lossLayer,
            optimizer=optimizer,
            loss_cells={},
            user_gradients={},
            watched_gradients={},
            pending_gradients=[],
            to_stop=[],
            stopped=[],
            to_train=[],
            trained_tensors=[],
            gradient_hooks=[],
            last=None,
        )
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
        own = own_loss_node(self._lossLayer, nodes, self._labels, self._label_weights, self._loss_cells)
        return nodes if own is None else [*nodes, own]

    def _keeps_value(self, cell: TensorState) -> bool:
        return super()._keeps_value(cell) or any(p._tensor._cell is cell for p in self._trained_tensors)

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
        return self._declare_inputs(inputs, lossLabels, lossLabelWeights)

    @declare("setTrainingTensorParameters(_ parameters: [MLCTensorParameter]) -> Bool", "setTrainingTensorParameters:")
    def _set_training_tensors(self, parameters):
        """Tensors that are trained although they are no layer's parameters, from the next compile on."""
        with self._lock:
            self._to_train = list(parameters)
        return True

    @declare(
        "bindOptimizerData(_ data: [MLCTensorData], deviceData: [MLCTensorOptimizerDeviceData]?, "
        "with tensor: MLCTensor) -> Bool",
        "bindOptimizerData:deviceData:withTensor:",
    )
    def _bind_optimizer_data(self, data, deviceData, tensor):
        return tensor._bind_optimizer(data, deviceData)

    # Compiling

    def _take_up(self, device):
        self._stopped, self._trained_tensors, self._last = list(self._to_stop), list(self._to_train), None
        for parameter in self._trained_tensors:
            parameter._tensor._cell.place(device, writable=True)

    @declare("compileOptimizer(_ optimizer: MLCOptimizer) -> Bool", "compileOptimizer:")
    def _compile_optimizer(self, optimizer):
        """Use ``optimizer`` from now on; it starts without state unless some is bound."""
        if self._options is None:
            refuse("compile the graph before its optimizer")
        with self._lock:
            _check_rule(optimizer)
            if optimizer is not self._optimizer:
                cells = [use.cell for layer in unique_layers(self._planned_nodes()) for use in layer.parameter_uses]
                for cell in (*cells, *(p._tensor._cell for p in self._trained_tensors)):
                    cell.optimizer_device_data = []
            self._optimizer = optimizer
            self._changed()
        return True

    @declare("link(with graphs: [MLCTrainingGraph]) -> Bool", "linkWithGraphs:")
    def _link(self, graphs):
        """Tensors shared with these graphs carry values forward and gradients backward."""
        for graph in (self, *graphs):
            if graph._options is None or not graph._options & Compile.linkGraphs:
                refuse("every graph must be compiled with the option linkGraphs before it is linked")
        return self._link_with(graphs)

    def _nodes_to_run(self, nodes: list[Node], variant: str = "") -> list[Node]:
        nodes = self._with_own_loss(nodes)
        if variant == PREDICT:
            return [n for n in nodes if not self._is_loss(n.layer)]
        return nodes

    def _missing(self, variant: str = "") -> str | None:
        for node in self._planned_nodes(variant):
            if isinstance(node.layer, MLCLossLayer) and len(node.reads) == 1:
                return f"loss layer {node.layer.label!r} has no labels; declare them with addInputs(_:lossLabels:)"
        return super()._missing(variant)

    def _fed(self, variant: str = ""):
        fed = super()._fed(variant)
        return [(k, cells if k in ("input", LINKED) else {}) for k, cells in fed] if variant == PREDICT else fed

    def _plan_request(self, nodes: list[Node], variant: str) -> PlanRequest:
        request = super()._plan_request(nodes, variant)
        if variant == PREDICT:
            return request
        asked = list(self._watched_gradients.values())
        inputs = list(self._inputs.values()) if self._options & Compile.computeAllGradients else []
        if self._options & Compile.debugLayers:
            asked += [c for n in nodes if n.layer._isDebuggingEnabled for c in (*n.sources, *n.results)]
        imported = [c for n in nodes for c in n.reads if id(c) in request.linked]
        request.losses = [n.results[0] for n in nodes if self._is_loss(n.layer)]
        request.injected = [cell for cell, _ in self._user_gradients.values()] + self._exported(nodes)
        request.wanted = [c for c in (*inputs, *asked, *imported) if c.dtype.is_floating_point]
        request.stopped = self._stopped
        request.trained_tensors = [(p._tensor._cell, p._isUpdatable) for p in self._trained_tensors]
        if VALUES_SEEN not in self._warned:
            request.readable += probabilities_of(nodes)
        hooks: dict[int, tuple[Any, ...]] = {}
        for cell, hook in self._gradient_hooks:
            hooks[id(cell)] = (*hooks.get(id(cell), ()), hook)
        request.hooks, request.trains = hooks, True
        return request

    def _result_cell(self, nodes: list[Node]) -> TensorState:
        """The own loss, else the last loss added, else the last node."""
        losses = [n for n in nodes if self._is_loss(n.layer)]
        return (losses or nodes)[-1].results[0]

    def _optimizer_for(self, variant: str):
        return None if variant == PREDICT else self._optimizer

    def _ready(self, variant: str = ""):
        known = self._sessions.get(variant)
        session = super()._ready(variant)
        if session is not known and variant != PREDICT:
            nodes = self._planned_nodes()
            warn_untrained(self._warned, nodes, self._outputs, self._optimizer is None or self._learns(session, nodes))
            session.prepare(training=True, differentiates=session.plan.differentiates)
        return session

    def _learns(self, session, nodes: list[Node]) -> bool:
        """Whether a gradient comes to anything that may be updated."""
        plan = session.plan
        if not plan.differentiates:
            return True  # a gradient from outside may be promised later: execute looks again
        ends = [plan.cells[slot] for slot in (*plan.losses, *plan.injected)]
        seen, tensors = reached(nodes, ends, self._stopped)
        layers = unique_layers(n for n in nodes if id(n) in seen and n.updates)
        tensors |= {id(use.cell) for layer in layers for use in layer.parameter_uses}
        return any(t.updated and id(t.cell) in tensors for t in plan.trained)

    # Running

    @declare(
        f"execute(inputsData: {DATA}, {LABELS_DATA}, batchSize: Int, {OPTIONS}, {HANDLER}",
        "executeWithInputsData:lossLabelsData:lossLabelWeightsData:batchSize:options:completionHandler:",
    )
    @declare(
        f"execute(inputsData: {DATA}, {LABELS_DATA}, outputsData: {DATA}?, batchSize: Int, {OPTIONS}, {HANDLER}",
        "executeWithInputsData:lossLabelsData:lossLabelWeightsData:outputsData:batchSize:options:completionHandler:",
    )
    @has_quick_way
    def _run(
        self,
        inputsData,
        lossLabelsData,
        lossLabelWeightsData,
        batchSize,
        options=Run(0),
        completionHandler=None,
        outputsData=None,
    ):
        """Forward, gradient and, with an optimizer, update; only forward with ``forwardForInference``."""

        def work():
            full, batch = self._batch(batchSize)
            targets = self._output_targets(outputsData, full, batch)
            bits = options._value_ | self._forced_options
            infers = bool(bits & _INFERS)
            variant = PREDICT if infers and not lossLabelsData else ""
            session = self._ready(variant)
            skip = bits & _SKIP
            data = (None, None, None) if skip else (inputsData, lossLabelsData, lossLabelWeightsData)
            feeds = take(session.feeds, data, None if batch == full else batch)
            differentiates = not infers and session.plan.differentiates
            if not infers and not differentiates and self._optimizer is not None:
                warn_untrained(self._warned, [], {}, learns=False)
            turn = next(_turns)
            injected = self._injected(session, full, batch, turn) if differentiates else []
            session.separate, session.turn = False, turn
            session.run(feeds, injected, not infers, differentiates, full == batch, bool(bits & _BY_LAYER))
            self._last = session
            if differentiates and self._pending_gradients:
                self._fill_gradient_tensors(session)
            result = self._publish(session)
            self._look_at_values(session)
            self._keep_short_ways(session, full)
            return result, targets

        return self._execute(TRAIN, options, completionHandler, work)

    @declare(
        f"executeForward(batchSize: Int, {OPTIONS}, {HANDLER}",
        "executeForwardWithBatchSize:options:completionHandler:",
    )
    @declare(
        f"executeForward(batchSize: Int, {OPTIONS}, outputsData: {DATA}?, {HANDLER}",
        "executeForwardWithBatchSize:options:outputsData:completionHandler:",
    )
    @has_quick_way
    def _forward(self, batchSize, options=Run(0), completionHandler=None, outputsData=None):
        """The forward pass over the data that ``bindAndWriteData`` bound."""

        def work():
            full, batch = self._batch(batchSize)
            targets = self._output_targets(outputsData, full, batch)
            bits = options._value_ | self._forced_options
            infers = bool(bits & _INFERS)
            unlabelled = any(c.value is None and c.host is None for c in self._labels.values())
            variant = PREDICT if infers and unlabelled else ""
            session = self._ready(variant)
            feeds = take(session.feeds, (None, None, None), None if batch == full else batch)
            # The gradient phase reads them again, and by then the caller may have put other numbers there.
            feeds = [t if f.cell.host is None else t.clone() for f, t in zip(session.feeds, feeds, strict=True)]
            session.separate, session.samples, session.turn = True, batch, next(_turns)
            differentiates = not infers and session.plan.differentiates
            session.forward(feeds, not infers, differentiates, full == batch, bool(bits & _BY_LAYER))
            self._last = session
            result = self._publish(session)
            self._look_at_values(session)
            self._keep_short_ways(session, full)
            return result, targets

        return self._execute("executeForward(batchSize:options:completionHandler:)", options, completionHandler, work)

    @declare(
        f"executeGradient(batchSize: Int, {OPTIONS}, {HANDLER}",
        "executeGradientWithBatchSize:options:completionHandler:",
    )
    @declare(
        f"executeGradient(batchSize: Int, {OPTIONS}, outputsData: {DATA}?, {HANDLER}",
        "executeGradientWithBatchSize:options:outputsData:completionHandler:",
    )
    @has_quick_way
    def _gradient(self, batchSize, options=Run(0), completionHandler=None, outputsData=None):
        """The gradients of what ``executeForward`` computed."""

        def work():
            full, batch = self._batch(batchSize)
            targets = self._output_targets(outputsData, full, batch)
            session = self._last
            if session is not None and session is self._sessions.get("") and not session.plan.differentiates:
                refuse("nothing to differentiate: the graph has no loss and no user gradient")
            if session is None or not session.went_forward:
                done = session is not None and session.has_gradients
                refuse(
                    "the gradient of this forward pass was computed already; call executeForward again"
                    if done
                    else "no forward pass to differentiate; call executeForward first"
                )
            if full and batchSize and batchSize != session.samples:
                refuse(f"batchSize is {batchSize}, the forward pass ran {session.samples} samples; give the same, or 0")
            session.gradient(self._injected(session, full, session.samples, session.turn))
            if self._pending_gradients:
                self._fill_gradient_tensors(session)
            return None, targets

        return self._execute("executeGradient(batchSize:options:completionHandler:)", options, completionHandler, work)

    @declare(f"executeOptimizerUpdate({OPTIONS}, {HANDLER}", "executeOptimizerUpdateWithOptions:completionHandler:")
    @has_quick_way
    def _update(self, options=Run(0), completionHandler=None):
        """Apply the optimizer to the gradients of the last ``executeGradient``."""

        def work():
            session = self._last
            if session is None or not session.has_gradients:
                refuse("no gradient to apply; call executeForward and executeGradient first")
            if self._optimizer is None:
                refuse("the graph has no optimizer; give one to compileOptimizer")
            self._renew_updatable(session)
            session.update(self._optimizer)
            return None, ()

        return self._execute("executeOptimizerUpdate(options:completionHandler:)", options, completionHandler, work)

    @declare(
        f"async execute(inputsData: {DATA}, lossLabelsData: {DATA}? = nil, lossLabelWeightsData: {DATA}? = nil, "
        f"outputsData: {DATA}? = nil, batchSize: Int, {OPTIONS}) {TIMED}",
        ours=True,
    )
    def _run_async(self, inputsData, batchSize, lossLabelsData=None, lossLabelWeightsData=None, **more):
        return awaited(
            self._run,
            inputsData=inputsData,
            lossLabelsData=lossLabelsData,
            lossLabelWeightsData=lossLabelWeightsData,
            batchSize=batchSize,
            **more,
        )

    @declare(f"async executeForward(batchSize: Int, {OPTIONS}, outputsData: {DATA}? = nil) {TIMED}")
    def _forward_async(self, batchSize, **more):
        return awaited(self._forward, batchSize=batchSize, **more)

    @declare(f"async executeGradient(batchSize: Int, {OPTIONS}, outputsData: {DATA}? = nil) -> TimeInterval")
    def _gradient_async(self, batchSize, **more):
        return awaited_time(self._gradient, batchSize=batchSize, **more)

    @declare(f"async executeOptimizerUpdate({OPTIONS}) -> TimeInterval")
    def _update_async(self, **more):
        return awaited_time(self._update, **more)

    def _renew_updatable(self, session) -> None:
        """``isUpdatable`` counts as it is when the update comes, not as it was when the gradient was computed."""
        if session.is_current(newest_change()):
            return
        now = updatable(self._planned_nodes(), [(p._tensor._cell, p._isUpdatable) for p in self._trained_tensors])
        plan = session.plan
        trained = tuple(replace(t, updated=now.get(id(t.cell), t.updated)) for t in plan.trained)
        if [t.updated for t in trained] != [t.updated for t in plan.trained]:
            session.plan, session.updater = replace(plan, trained=trained), None

    def _broke_off(self):
        self._last = None

    def _keep_short_ways(self, session: Session, full: int) -> None:
        if not self._quick and session.plan.differentiates and session is self._sessions.get("") and not self._linked:
            self._quick = quick_ways(self, session, full)

    def _look_at_values(self, session) -> None:
        if VALUES_SEEN not in self._warned:
            warn_of_values(self._warned, self._planned_nodes(), session.value_of)

    # Reading back

    @declare("synchronizeUpdates()", "synchronizeUpdates")
    def _synchronize_updates(self):
        """Bring trained weights, running statistics and trained tensors back into the caller's memory."""
        with self._lock:
            for layer in unique_layers(self._planned_nodes()):
                for cell in (*(use.cell for use in layer.parameter_uses), *layer.buffer_cells):
                    cell.download()
            for parameter in self._trained_tensors:
                parameter._tensor._cell.download()

    @prop("Int")
    def deviceMemorySize(self):
        """Bytes of results and their gradients; gradients and state of parameters as they come (evidence.md H.7)."""
        if self._options is None:
            return 0
        nodes = [n for n in self._planned_nodes() if n.layer is not self._lossLayer]
        total = 2 * sum(c.descriptor.nbytes for node in nodes for c in node.results)
        if self._last is not None:
            total += sum(g.nbytes for g in self._last.gradients if g is not None)
            if self._last.updater is not None and self._last.updated:
                total += self._last.updater.state_bytes()
        return total


def _check_rule(optimizer: MLCOptimizer) -> None:
    if type(optimizer) is MLCOptimizer:
        refuse("MLCOptimizer itself has no update rule; use MLCSGDOptimizer, MLCAdamOptimizer or another of its kinds")
