"""``MLCTrainingGraph``: forward, gradient and optimizer update, together or one by one."""

from __future__ import annotations

import itertools
from typing import NoReturn

from mlc_torch.engine.mode import Mode, Phase
from mlc_torch.engine.session import Session
from mlc_torch.nodes.feeding import refuse_moved, take
from mlc_torch.nodes.node import producers
from mlc_torch.refusals import refuse
from mlc_torch.running.asynchronous import awaited, awaited_time
from mlc_torch.running.completion import Targets
from mlc_torch.running.fit import FittingGraph
from mlc_torch.running.planner import updatable
from mlc_torch.running.request import BY_LAYER, INFERS, NO_DATA, SKIPS_WRITING, Data, Request, packs_request
from mlc_torch.running.results import of_pass, output_targets, publish, with_inputs
from mlc_torch.running.road import travel
from mlc_torch.running.signatures import DATA, HANDLER, LABELS_DATA, OPTIONS, TIMED
from mlc_torch.running.state import Variant
from mlc_torch.running.trainable import TrainableGraph
from mlc_torch.running.training_warnings import warn_untrained
from mlc_torch.spelling import declare
from mlc_torch.tensor import TensorState
from mlc_torch.tensor.state import changes

_forward_numbers = itertools.count(1)
"""The order of forward passes, over all graphs."""

_IDLE, _FORWARD, _OUTDATED = Phase.idle, Phase.forward, Phase.outdated
_INFER, _TRAIN, _BARE = Mode.infer, Mode.train, Mode.train_without_gradient
_WHOLE, _PREDICT = Variant.whole, Variant.predict

_OVERTAKEN = (
    "an inference through this training graph (evaluate, or forwardForInference) has run since, and took its place; infer before "
    "or after a whole step, or with an inference graph over the same layers, which leaves a step alone"
)

Outcome = tuple[TensorState | None, Targets]


class MLCTrainingGraph(FittingGraph, TrainableGraph):
    """Trains the parameters of the layers of its graph objects, and its own."""

    # All phases in one call

    @declare(
        f"execute(inputsData: {DATA}, {LABELS_DATA}, batchSize: Int, {OPTIONS}, {HANDLER}",
        "executeWithInputsData:lossLabelsData:lossLabelWeightsData:batchSize:options:completionHandler:",
    )
    @declare(
        f"execute(inputsData: {DATA}, {LABELS_DATA}, outputsData: {DATA}?, batchSize: Int, {OPTIONS}, {HANDLER}",
        "executeWithInputsData:lossLabelsData:lossLabelWeightsData:outputsData:batchSize:options:completionHandler:",
    )
    @packs_request(travel)
    def _run(self, request: Request) -> Outcome:
        """Forward, gradient and, with an optimizer, update; only forward with ``forwardForInference``."""
        runs = self._runs
        full = runs.samples if runs.samples is not None else self._declared_batch()
        batch = full if request.batch_size == full else self._batch(request.batch_size, full)
        targets = output_targets(request.outputs, self, full, batch) if request.outputs else ()
        bits = request.options | runs.forced_options
        data = NO_DATA if bits & SKIPS_WRITING else request.data
        variant = _WHOLE
        if bits & INFERS:
            # A call that says what its labels are says with none that it wants predictions, whatever is bound.
            lacks_labels = self._lacks_labels() if bits & SKIPS_WRITING else not data[1]
            variant = _PREDICT if lacks_labels else _WHOLE
        session = runs.sessions.get(variant)
        if session is None or session.checked != changes.newest:
            session = self._session(variant)
        runs.active = session
        if self._linked:
            self._check_links(variant, batch)
        if self._steering.moved and not bits & INFERS:
            refuse_moved(self._steering.moved, data)
        feeds = take(self._feeds[variant], data, None if batch == full else batch)
        mode = _INFER if bits & INFERS else _TRAIN if session.differentiates else _BARE
        if targets and mode is not _TRAIN:
            self._refuse_uncomputed(request.outputs, session)
        runs.overtaken = runs.left_behind() if mode is _INFER else None
        if mode is _BARE and self._optimizer is not None:
            warn_untrained(runs.warned, [], learns=False)
        if targets and runs.returns_inputs:
            targets = with_inputs(targets, session, feeds)
        number = next(_forward_numbers)
        injected = self._injected(session, full, batch, number) if mode is _TRAIN and session.given else ()
        session.forward_number = number
        session.run(feeds, injected, mode, full == batch, bool(bits & BY_LAYER))
        return self._ran(session), targets

    @declare(
        f"async execute(inputsData: {DATA}, lossLabelsData: {DATA}? = nil, lossLabelWeightsData: {DATA}? = nil, "
        f"outputsData: {DATA}? = nil, batchSize: Int, {OPTIONS}) {TIMED}",
        ours=True,
    )
    @packs_request(awaited)
    def _run_async(self, request: Request) -> Outcome:
        """As ``execute``; ``await`` gives the loss and the seconds it took, and a refusal is raised."""
        return self._run(request)

    def _ran(self, session: Session) -> TensorState:
        """What follows a forward pass; gives the handler's result."""
        self._runs.last = session
        if session.phase is not _IDLE:
            self._runs.begun = session.forward_number
        if self._steering.pending and session.phase.has_gradients:
            self._fill_gradient_tensors(session)
        result = publish(session, self._device)
        if not self._runs.looked:
            self._look_at_values(session)
        value = result.value
        if value is not None and value.is_cpu and session.losses:
            number = value.item() if value.numel() == 1 else value.sum().item()
            if number != number:
                self._look_at_result(value)
        return result

    # The phases one by one

    @declare(
        f"executeForward(batchSize: Int, {OPTIONS}, {HANDLER}",
        "executeForwardWithBatchSize:options:completionHandler:",
    )
    @declare(
        f"executeForward(batchSize: Int, {OPTIONS}, outputsData: {DATA}?, {HANDLER}",
        "executeForwardWithBatchSize:options:outputsData:completionHandler:",
    )
    @packs_request(travel)
    def _forward(self, request: Request) -> Outcome:
        """The forward pass over the data that ``bindAndWriteData`` bound.

        A later pass of this graph takes its place, one for inference too, by ``evaluate`` or with ``forwardForInference``.
        """
        runs = self._runs
        full = runs.samples if runs.samples is not None else self._declared_batch()
        batch = full if request.batch_size == full else self._batch(request.batch_size, full)
        targets = output_targets(request.outputs, self, full, batch) if request.outputs else ()
        bits = request.options | runs.forced_options
        variant = _PREDICT if bits & INFERS and self._lacks_labels() else _WHOLE
        session = runs.sessions.get(variant)
        if session is None or session.checked != changes.newest:
            session = self._session(variant)
        runs.active = session
        if self._linked:
            self._check_links(variant, batch)
        if self._steering.moved:
            refuse_moved(self._steering.moved, request.data)
        feeds = take(self._feeds[variant], request.data, None if batch == full else batch)  # only fit gives any
        for number, feed in enumerate(self._feeds[variant]):
            if feed.cell.host is not None:
                # The gradient phase reads it again, and by then the caller may have put other numbers there.
                feeds[number] = feeds[number].clone()
        mode = _INFER if bits & INFERS else _TRAIN if session.differentiates else _BARE
        if targets:
            self._refuse_uncomputed(request.outputs, session)
        runs.overtaken = runs.left_behind() if mode is _INFER else None
        if targets and runs.returns_inputs:
            targets = with_inputs(targets, session, feeds)
        session.separate, session.samples, session.forward_number = True, batch, next(_forward_numbers)
        session.forward(feeds, mode, full == batch, bool(bits & BY_LAYER))
        return self._ran(session), targets

    @declare(f"async executeForward(batchSize: Int, {OPTIONS}, outputsData: {DATA}? = nil) {TIMED}")
    @packs_request(awaited)
    def _forward_async(self, request: Request) -> Outcome:
        """As ``executeForward``; ``await`` gives the result and the seconds it took, and a refusal is raised."""
        return self._forward(request)

    def _lacks_labels(self) -> bool:
        """Whether there are no labels for the losses, of a call that is given none."""
        labels = self._declared.labels
        if labels:
            return any(c.value is None and c.host is None for c in labels.values())
        return self._runs.sessions.get(_WHOLE) is None and self._missing() is not None  # constants may be labels, too

    def _refuse_uncomputed(self, outputs: Data | None, session: Session) -> None:
        """Refuse buffers for what a pass without its gradient leaves out: they would show an older pass, or stay as they are."""
        for name in outputs or ():
            cell = self._declared.outputs[name]
            if cell.gradient_of is not None:
                refuse(
                    f"the output {name!r} is a gradient, and this call computes none; give its buffer to executeGradient, or to "
                    "an execute that trains"
                )
            if id(cell) in session.plan.slots:
                continue
            _, *for_losses = self._declared.fed()
            if id(cell) in producers(self._planned_nodes()) or any(cell in cells.values() for _, cells in for_losses):
                refuse(
                    f"the output {name!r} belongs to the loss or comes behind it, and without labels an inference stops before "
                    "the loss; give labels, or bind them"
                )

    @declare(
        f"executeGradient(batchSize: Int, {OPTIONS}, {HANDLER}",
        "executeGradientWithBatchSize:options:completionHandler:",
    )
    @declare(
        f"executeGradient(batchSize: Int, {OPTIONS}, outputsData: {DATA}?, {HANDLER}",
        "executeGradientWithBatchSize:options:outputsData:completionHandler:",
    )
    @packs_request(travel)
    def _gradient(self, request: Request) -> Outcome:
        """The gradients of what ``executeForward`` computed; refused where an inference of this graph came between, or an update
        of another one over the same weights."""
        runs, (_, _, _, wanted, _, outputs, _) = self._runs, request
        full = runs.samples if runs.samples is not None else self._declared_batch()
        if wanted != full:
            self._batch(wanted, full)  # refused where it is no number of samples; 0 is that of the forward pass
        session = runs.last
        if session is None or session.phase is not _FORWARD:
            self._refuse_gradient(session)
        if full and wanted and wanted != session.samples:
            refuse(f"batchSize is {wanted}, the forward pass ran {session.samples} samples; give the same, or 0")
        if self._steering.from_user or self._linked:
            self._refuse_late_gradients(session)
        targets = of_pass(output_targets(outputs, self, full, session.samples), session) if outputs else ()
        injected = self._injected(session, full, session.samples, session.forward_number) if session.given else ()
        kept = None if session.ranks else session.kept  # each of several processes keeps its own share
        if targets and runs.returns_inputs and kept is not None:
            targets = with_inputs(targets, session, kept.feeds)
        runs.active = session
        session.gradient(injected)
        if self._steering.given:
            self._show_gradients(session)
        if self._steering.pending:
            self._fill_gradient_tensors(session)
        return None, targets

    def _refuse_gradient(self, session: Session | None) -> NoReturn:
        """What is missing before a gradient can be computed."""
        if session is not None and session is self._runs.sessions.get(_WHOLE) and not session.differentiates:
            refuse("nothing to differentiate: the graph has no loss and no user gradient")
        if session is not None and session.phase.has_gradients:
            refuse("the gradient of this forward pass was computed already; call executeForward again")
        if session is not None and session.phase is _OUTDATED:
            refuse(
                "the forward pass is gone: another graph's update has changed weights that it read; call executeForward again"
            )
        if session is not None and self._runs.overtaken is _FORWARD:
            refuse(f"the forward pass is gone: {_OVERTAKEN}; call executeForward again")
        if session is not None and session.kept is not None and session.kept.mode is _BARE:
            self._refuse_late_gradients(session)
        refuse("no forward pass to differentiate; call executeForward first")

    def _refuse_late_gradients(self, session: Session) -> None:
        """A forward pass has a place for the gradients from outside that were announced before it, and for no others."""
        if session in self._runs.sessions.values():
            return  # nothing was announced since
        late = [(cell, "the user gradient of", "allocated") for cell, _ in self._steering.from_user.values()]
        late += [(cell, "a graph that reads", "linked") for cell in self._exported(self._planned_nodes())]
        for cell, what, happened in late:
            slot = session.plan.slots.get(id(cell))
            if slot is not None and slot not in (*session.given, *session.plan.closed):
                refuse(
                    f"{what} {cell.label!r} was {happened} after the forward pass, which has no place for its gradient; call "
                    "executeForward again"
                )

    @declare(f"async executeGradient(batchSize: Int, {OPTIONS}, outputsData: {DATA}? = nil) -> TimeInterval")
    @packs_request(awaited_time)
    def _gradient_async(self, request: Request) -> Outcome:
        """As ``executeGradient``; ``await`` gives the seconds it took, and a refusal is raised."""
        return self._gradient(request)

    @declare(f"executeOptimizerUpdate({OPTIONS}, {HANDLER}", "executeOptimizerUpdateWithOptions:completionHandler:")
    @packs_request(travel)
    def _update(self, request: Request) -> Outcome:
        """Apply the optimizer to the gradients of the last ``executeGradient``; refused where an inference came between."""
        session = self._runs.last
        if session is None or not session.phase.has_gradients:
            self._refuse_update(session)
        if self._optimizer is None:
            refuse("the graph has no optimizer; give one to compileOptimizer")
        if session.checked != changes.newest and not session.is_current():
            # isUpdatable counts as it is when the update comes, not as it was when the gradient was computed.
            now = updatable(self._planned_nodes(), self._trained_tensors())
            session.retrain([now.get(id(t.cell), t.updated) for t in session.plan.trained])
        if session.updater is None or session.updater.optimizer is not self._optimizer:
            session.use(self._optimizer)
        self._runs.active = session
        session.update()
        session.kept = None  # nothing can be asked of that pass any more: its inputs need not stay until the next one
        return None, ()

    def _refuse_update(self, session: Session | None) -> NoReturn:
        """What is missing before an update."""
        overtaken = self._runs.overtaken
        if session is not None and overtaken is not None and overtaken.has_gradients:
            refuse(f"the gradient is gone: {_OVERTAKEN}; call executeForward and executeGradient again")
        refuse("no gradient to apply; call executeForward and executeGradient first")

    @declare(f"async executeOptimizerUpdate({OPTIONS}) -> TimeInterval")
    @packs_request(awaited_time)
    def _update_async(self, request: Request) -> Outcome:
        """As ``executeOptimizerUpdate``; ``await`` gives the seconds it took, and a refusal is raised."""
        return self._update(request)
