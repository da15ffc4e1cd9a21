"""What a graph that can be run is told beforehand: inputs, labels, outputs, links; and what a run is given of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mlc_torch.going_back import undone_if_broken_off
from mlc_torch.graph.binding import Part
from mlc_torch.graph.graph import MLCGraph
from mlc_torch.graph.locks import Locks, locked
from mlc_torch.layers.sharing import Axis
from mlc_torch.nodes.feeds import LINKED, Feed, counted_axis, declared_batch, refuse_part
from mlc_torch.nodes.node import Node, in_order, producers
from mlc_torch.nodes.samples import axes_in_one_process
from mlc_torch.nodes.sequences import with_lengths
from mlc_torch.refusals import refuse
from mlc_torch.running.completion import CompletionQueue
from mlc_torch.running.road import Gate
from mlc_torch.running.signatures import TENSORS
from mlc_torch.running.state import Compiled, Declared, Runs, Variant
from mlc_torch.running.users import Users
from mlc_torch.seeing.facts import GraphFacts
from mlc_torch.seeing.memory import Memory
from mlc_torch.seeing.profile import Profile
from mlc_torch.spelling import declare
from mlc_torch.spelling.own import wrong_type
from mlc_torch.tensor import MLCTensor, TensorState
from mlc_torch.tensor.state import host_bytes

Feeds = Sequence[Feed]

_linking = Locks()
"""Held by who links graphs: two threads that link a graph at once would each leave out what the other adds."""


class DeclaringGraph(MLCGraph, inherits_initializers=False):
    """A graph over other graphs, with names for what it is given and what it gives."""

    _trains = False
    _declared: Declared
    _compiled: Compiled | None
    _runs: Runs
    _linked: Sequence[DeclaringGraph]
    _feeds: dict[Variant, Feeds]
    _results: dict[Variant, MLCTensor]

    @classmethod
    def _over(cls, graphObjects: list[MLCGraph], **more: Any) -> Any:
        lock, queue = Locks(graph._lock for graph in graphObjects), CompletionQueue()
        users = Users(lock.places)
        made = cls._make(
            nodes=[],
            device=None,
            graphObjects=list(graphObjects),
            declared=Declared(),
            compiled=None,
            runs=Runs(),
            linked=[],
            feeds={},
            results={},
            users=users,
            lock=lock,
            queue=queue,
            gate=Gate(queue.failures, users.threads, lock.one),
            **more,
        )
        for place in lock.places:
            made._declared.kept.update(place.enter(made))
        return made

    def _all_nodes(self) -> list[Node]:
        nodes = [node for graph in self._graphObjects for node in graph._all_nodes()] + self._nodes
        given, ordered = self._runs.ordered
        if given != nodes:  # asked for by every query, of each layer of a graph in turn
            ordered = in_order(nodes)
            self._runs.ordered = nodes, ordered
        return ordered

    def _changed(self) -> None:
        self._runs.forget()

    def _forget_runs(self) -> None:
        self._runs.forget()
        self._runs.last = self._runs.active = None

    def _forget_compile(self) -> None:
        """The graph is as one that was not compiled."""
        self._compiled = None
        self._forget_runs()

    # Seeing it (ours)

    def memory(self) -> Memory:
        """What the graph holds on its device: parameters, statistics, optimizer state, gradients, results and so on."""
        return self._lock.holding(lambda: Memory(self._facts()))

    def profile(self, work: Callable[[], Any] | None = None) -> Profile:
        """Time by layer: ``with graph.profile() as report:``, or of what ``work`` executes if it is given."""
        if work is not None and not callable(work):
            raise wrong_type(f"{type(self).__name__}.profile", "work", "a function without arguments", work)
        report = Profile(self._facts, self._runs)
        if work is not None:
            with report:
                work()
        return report

    def _facts(self) -> GraphFacts:
        declared, runs, nodes = self._declared, self._runs, self._all_nodes()
        sessions = [*runs.sessions.values(), *([] if runs.last is None else [runs.last])]
        return GraphFacts(
            type(self).__name__,
            nodes,
            frozenset(id(n.layer) for n in nodes if self._is_loss(n.layer)),
            executable=True,
            declared=tuple(declared.named()),
            linked=frozenset(self._linked_results()),
            trains=self._trains,
            stopped=frozenset(self._stopped_cells()),
            trained_tensors=tuple(p._tensor._cell for p in self._parameters_to_train()),
            optimizer=self._update_rule(),
            device=None if self._device is None else self._device.torch_device,
            session=runs.sessions.get(Variant.whole),
            sessions=tuple({id(s): s for s in sessions}.values()),
            idle=self._why_idle(),
        )

    def _why_idle(self) -> str:
        """Why no gear is chosen, where none is."""
        if self._compiled is None:
            return "not compiled"
        return self._missing() or "chosen anew at the next execute, since the graph has changed"

    # Declaring

    @locked
    def _declare_inputs(
        self,
        inputs: Mapping[str, MLCTensor],
        labels: Mapping[str, MLCTensor] | None = None,
        weights: Mapping[str, MLCTensor] | None = None,
    ) -> bool:
        declared = self._declared
        declared.inputs |= {name: t._cell for name, t in inputs.items()}
        declared.labels |= {name: t._cell for name, t in (labels or {}).items()}
        declared.label_weights |= {name: t._cell for name, t in (weights or {}).items()}
        self._changed()
        return True

    @declare(f"addOutputs(_ outputs: {TENSORS}) -> Bool", "addOutputs:", nil=("outputs",))
    @locked
    def _add_outputs(self, outputs):
        """Name the tensors that are to be readable after a run, in addition to the result."""
        self._declared.outputs |= {name: t._cell for name, t in (outputs or {}).items()}
        self._changed()
        return True

    def _link_with(self, graphs: Sequence[DeclaringGraph]) -> bool:
        """Beside the links that are there: to link graphs one by one gives the same as to link all of them at once."""
        others = [graph for graph in graphs if graph is not self]
        if graphs and not others:
            refuse("a graph is linked with other graphs, and the list holds nothing but the graph itself")
        if others:
            _linking.holding(self._join, others)
        return True

    def _join(self, graphs: Sequence[DeclaringGraph]) -> None:
        """All of them, or none: a graph that is linked to one that is not would wait for gradients that never come."""
        everyone = list(dict.fromkeys(g for graph in (self, *graphs) for g in (graph, *graph._linked)))
        before = [(graph, graph._linked) for graph in everyone]
        now = [(graph, [g for g in everyone if g is not graph]) for graph in everyone]
        undone_if_broken_off(lambda: _link(now), lambda: _link(before))

    def _take_links(self, graphs: Sequence[DeclaringGraph]) -> None:
        self._changed()  # before it, too: whatever strikes, the next run makes a new plan
        self._linked = graphs
        self._changed()

    # What runs, and what it is given

    def _planned_nodes(self, variant: Variant = Variant.whole) -> list[Node]:
        """The nodes that run: those of the last compile. Nodes that came later wait for the next."""
        nodes = DeclaringGraph._all_nodes(self) if self._compiled is None else self._compiled.nodes
        return with_lengths(self._nodes_to_run(nodes, variant), self._declared.inputs, self._runs.lengths)

    def _nodes_to_run(self, nodes: list[Node], variant: Variant = Variant.whole) -> list[Node]:
        """What is run of these nodes. Variants leave some out."""
        return nodes

    def _fed(self, variant: Variant) -> list[tuple[str, Mapping[str, TensorState]]]:
        """What a call is given data for: kind, names and tensors, in the order of the plan's fed slots.

        A tensor that was declared and that no node reads needs no data.
        """
        nodes = self._planned_nodes(variant)
        read = {id(c) for node in nodes for c in node.reads}
        fed: list[tuple[str, Mapping[str, TensorState]]] = [
            (kind, {name: c for name, c in cells.items() if id(c) in read}) for kind, cells in self._declared.fed()
        ]
        if self._linked:
            fed.append((LINKED, self._imported(nodes)))
        return fed

    def _imported(self, nodes: list[Node]) -> dict[str, TensorState]:
        """What these nodes read of the results of linked graphs, as far as it was not declared as an input."""
        known = {id(c) for _, cells in self._declared.fed() for c in cells.values()}
        known |= {id(c) for node in nodes for c in node.results}
        linked = self._linked_results() - known
        return {str(c.tensor_id): c for node in nodes for c in node.reads if id(c) in linked}

    def _fed_cells(self, variant: Variant) -> list[TensorState]:
        return [cell for _, cells in self._fed(variant) for cell in cells.values()]

    def _missing(self, variant: Variant = Variant.whole) -> str | None:
        """What the graph still lacks to run, in words."""
        nodes = self._planned_nodes(variant)
        there = {id(c) for c in self._fed_cells(variant)} | {id(c) for node in nodes for c in node.results}
        missing = {id(c): c for node in nodes for c in node.reads if id(c) not in there}
        linked = self._linked_results()
        bare = [c for c in missing.values() if c.host is None and c.value is None and id(c) not in linked]
        if not bare:
            return None
        names = ", ".join(f"{c.label} {list(c.shape)}" for c in bare)
        unread = self._declared.unread_by(nodes)
        return f"no data for {names}: declare it with addInputs, or give the tensor data{unread}"

    def _linked_results(self) -> set[int]:
        """The tensors that linked graphs compute."""
        return {id(c) for graph in self._linked for node in graph._all_nodes() for c in node.results}

    def _exported(self, nodes: list[Node]) -> list[TensorState]:
        """Results of this graph that linked graphs read."""
        read = {id(c) for g in self._linked for n in g._all_nodes() for c in n.reads}
        return [c for n in nodes for c in n.results if id(c) in read]

    def _result_cell(self, nodes: list[Node]) -> TensorState:
        """What the completion handler gets."""
        return nodes[-1].results[0]

    def _declared_batch(self) -> int:
        return self._batch_asked_by(())

    def _batch_asked_by(self, asking: tuple[DeclaringGraph, ...]) -> int:
        """How many samples the inputs hold. ``asking``: the linked graphs that want to know, which are not asked in turn."""
        runs = self._runs
        if runs.samples is None:
            nodes, inputs = self._planned_nodes(), self._declared.inputs
            linked: dict[int, Axis] = {}
            if self._linked:
                inputs, linked = inputs | self._imported(nodes), self._linked_axes(nodes, asking)
            runs.samples = declared_batch(inputs, self._declared.labels, nodes, linked, self._beyond())
        return runs.samples

    def _sample_axes(self, asking: tuple[DeclaringGraph, ...] = ()) -> dict[int, Axis]:
        """Which dimension of each tensor counts samples, by the cell's identity: what a short batch is cut along."""
        runs = self._runs
        if runs.axes is None:
            nodes, fed, full = self._planned_nodes(), self._fed_cells(Variant.whole), self._batch_asked_by(asking)
            linked = self._linked_axes(nodes, asking) if self._linked else {}
            runs.axes = axes_in_one_process(nodes, fed, full, linked, self._beyond())
        return runs.axes

    def _beyond(self) -> list[Node]:
        """The nodes of linked graphs: what they read of this one's results tells where samples lie in these."""
        return [node for graph in self._linked for node in graph._planned_nodes()]

    def _linked_axes(self, nodes: list[Node], asking: tuple[DeclaringGraph, ...]) -> dict[int, Axis]:
        """The same of what these nodes read of the results of linked graphs: those that compute them know."""
        found: dict[int, Axis] = {}
        for cell in self._imported(nodes).values():
            for graph in self._linked:
                if graph not in asking and id(cell) in producers(graph._planned_nodes()):
                    found[id(cell)] = graph._sample_axes((*asking, self))[id(cell)]
        return found

    def _check_links(self, variant: Variant, batch: int) -> None:
        """Refuse to read more samples of a linked tensor than the graph that computes it ran last.

        The others are of an older pass, unless somebody else has written the tensor since.
        """
        for feed in self._feeds[variant]:
            cell, axis = feed.cell, feed.batch_axis
            if feed.kind != LINKED or axis is None or axis < 0:
                continue
            for runs in (graph._runs for graph in self._linked):
                session, held = runs.last or runs.active, cell.value
                made = None if session is None else session.value_of(cell)
                if made is None or held is None or made.numel() >= held.numel() or (ran := made.shape[axis]) >= batch:
                    continue
                if host_bytes(held.narrow(axis, 0, ran)) == host_bytes(made):
                    refuse(
                        f"{batch} samples are to run, and the linked graph that computes {cell.label!r} ran {ran} last; run as "
                        "many there first, or fewer here"
                    )

    def _batch(self, batch_size: int, full: int) -> int:
        """How many samples a call runs that gives another number than was declared."""
        if batch_size < 0:
            refuse(f"batchSize must not be negative, got {batch_size}")
        if full and batch_size > full:
            refuse(f"batchSize is {batch_size}, the inputs hold {full} samples; a batch may be smaller, not larger")
        if not full and batch_size and not self._linked:
            refuse_part(batch_size, self._declared.labels, self._planned_nodes())
        return batch_size or full

    def _batches(self, cells: Mapping[str, TensorState], batch_size: int) -> dict[str, Part]:
        full = self._declared_batch()
        if batch_size in (0, full):
            return {}
        axes = self._sample_axes()
        if not full or batch_size < 0 or batch_size > full:
            return super()._batches(cells, batch_size)
        counted = {name: counted_axis(cell, axes, full) for name, cell in cells.items()}
        return {name: (axis, batch_size) for name, axis in counted.items() if axis is not None}


def _link(links: Iterable[tuple[DeclaringGraph, Sequence[DeclaringGraph]]]) -> None:
    for graph, others in links:
        graph._lock.holding(graph._take_links, others)
