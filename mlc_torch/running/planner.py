"""From the nodes of a graph to the plan that the engine runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mlc_torch.device import MLCDevice
from mlc_torch.engine.plan import Hook, Plan, Step, Trained
from mlc_torch.layers.sharing import Axis
from mlc_torch.nodes.node import Node, unique_layers
from mlc_torch.nodes.samples import rows_read
from mlc_torch.tensor import TensorState


@dataclass
class PlanRequest:
    """What a graph wants of its plan beyond running its nodes."""

    readable: list[TensorState] = field(default_factory=list)
    """Results that are read whatever happens to their handles."""
    losses: list[TensorState] = field(default_factory=list)
    injected: list[TensorState] = field(default_factory=list)
    exported: list[TensorState] = field(default_factory=list)
    """Results that linked graphs read, and give a gradient of."""
    wanted: list[TensorState] = field(default_factory=list)
    stopped: list[TensorState] = field(default_factory=list)
    trained_tensors: list[tuple[TensorState, bool]] = field(default_factory=list)
    """Tensors trained for themselves, not as a layer's, and whether they are updated."""
    linked: set[int] = field(default_factory=set)
    hooks: dict[int, tuple[Hook, ...]] = field(default_factory=dict)
    trains: bool = False
    axes: Mapping[int, Axis] = field(default_factory=dict)
    """Which dimension of each tensor counts samples, by the cell's identity."""
    batch: int = 0
    """How many samples were declared."""


def make_plan(nodes: Sequence[Node], fed: Iterable[TensorState], device: MLCDevice, request: PlanRequest) -> Plan:
    """Number the slots (fed, constant, computed), line up the modules, and say which gradients are wanted."""
    fed = tuple(fed)
    slots: dict[int, int] = {}
    for number, cell in enumerate(fed):
        slots.setdefault(id(cell), number)
    computed = {id(c) for node in nodes for c in node.results}
    constants: list[TensorState] = []
    for cell in (c for node in nodes for c in node.reads):
        if id(cell) not in slots and id(cell) not in computed:
            slots[id(cell)] = len(fed) + len(constants)
            constants.append(cell)
            if id(cell) not in request.linked:
                cell.place(device)
    following = len(fed) + len(constants)
    steps = []
    rows = rows_read(nodes, request.axes, request.batch)

    def guards(node: Node) -> tuple[tuple[int, int], ...]:
        """Indices that the graph computes itself; out of range they would end a process that uses a GPU."""
        sources = [c.descriptor for c in node.reads]
        limits = [(k, node.layer._index_limit(k, sources)) for k, c in enumerate(node.reads) if id(c) in computed]
        return tuple((k, limit) for k, limit in limits if limit is not None)

    for node in nodes:
        for cell in node.results:
            slots[id(cell)] = following
            following += 1
        steps.append(
            Step(
                node.layer.module,
                tuple(slots[id(c)] for c in node.reads),
                tuple(slots[id(c)] for c in node.results),
                node.layer.label or type(node.layer).__name__,
                guards(node) if device.torch_device.type != "cpu" else (),
                tuple(rows.get(id(node), {}).items()),
            )
        )

    def numbered(cells: Iterable[TensorState]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(slots[id(c)] for c in cells if id(c) in slots))

    every = [c for node in nodes for c in node.results]
    named = {id(c) for c in request.readable}
    readable = [c for c in every if id(c) in named or c.handle() is not None]
    stopped, behind = frozenset(numbered(request.stopped)), {id(c) for c in request.stopped}
    axes = ((number, request.axes.get(id(cell))) for number, cell in enumerate(fed))
    return Plan(
        cells=(*fed, *constants, *every),
        fed_count=len(fed),
        constant_count=len(constants),
        steps=tuple(steps),
        readable=numbered(readable),
        losses=numbered(request.losses),
        injected=numbered(request.injected + [c for c in request.exported if id(c) not in behind]),
        closed=numbered(c for c in request.exported if id(c) in behind),
        trained=_trained(nodes, request, slots) if request.trains else (),
        wanted=numbered(request.wanted),
        stopped=stopped,
        hooks={slots[key]: hooks for key, hooks in request.hooks.items() if key in slots},
        given=tuple(layer.module for layer in unique_layers(nodes) if layer._module_is_given),
        device=device.torch_device,
        counted=next(((number, axis) for number, axis in axes if axis is not None and axis >= 0), None)
        if rows
        else None,
    )


def updatable(nodes: Sequence[Node], trained_tensors: Iterable[tuple[TensorState, bool]]) -> dict[int, bool]:
    """Whether the optimizer may change a tensor, by the cell's identity: not where one of its parameters says no."""
    now: dict[int, bool] = {}
    for layer in unique_layers(n for n in nodes if n.updates):
        for use in layer._parameter_uses:
            now[id(use.cell)] = now.get(id(use.cell), True) and use.parameter._isUpdatable
    for cell, updates in trained_tensors:
        now[id(cell)] = now.get(id(cell), True) and updates
    return now


def moved_feeds(plan: Plan, fed: Iterable[tuple[str, Mapping[str, TensorState]]]) -> list[tuple[int, str]]:
    """Which of the tensors that a call may be given data for are moved by updates: the dictionary's number, and the name."""
    own = {id(t.cell) for t in plan.trained if t.updated and t.slot is not None and plan.differentiates}
    return [(group, name) for group, (_, cells) in enumerate(fed) for name, cell in cells.items() if id(cell) in own]


def _trained(nodes: Sequence[Node], request: PlanRequest, slots: dict[int, int]) -> tuple[Trained, ...]:
    """Every tensor with a gradient: a tensor that many layers use stands once, with all its uses."""
    uses: dict[int, dict] = {}
    cells: dict[int, TensorState] = {}
    updated = updatable(nodes, request.trained_tensors)
    stopped = {id(c) for c in request.stopped}
    layers_seen = set()
    for node in nodes:
        if not node.updates or id(node.layer) in layers_seen:
            continue
        layers_seen.add(id(node.layer))
        for use in node.layer._parameter_uses:
            key = id(use.cell)
            if not use.torch.requires_grad or key in stopped:
                continue
            cells[key] = use.cell
            uses.setdefault(key, {})[id(use.torch)] = use.torch  # layers may share one torch parameter too
    own = {}
    for cell, _ in request.trained_tensors:
        if id(cell) in slots and id(cell) not in stopped:
            cells[id(cell)] = cell
            own[id(cell)] = slots[id(cell)]
    return tuple(
        Trained(cell, tuple(uses.get(key, {}).values()), own.get(key), updated[key]) for key, cell in cells.items()
    )
