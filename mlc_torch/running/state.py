"""What a graph that can be executed knows, in four parts: what was declared, what compile was told, what is asked of
gradients, and what has been run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from torch import nn

from mlc_torch.engine.mode import Phase
from mlc_torch.engine.plan import Hook
from mlc_torch.engine.session import Session
from mlc_torch.enums import MLCGraphCompilationOptions as Compile
from mlc_torch.layers.sharing import Axis
from mlc_torch.nodes.loss_node import Form
from mlc_torch.nodes.node import Node
from mlc_torch.tensor import MLCTensor, MLCTensorParameter, TensorState

if TYPE_CHECKING:
    from mlc_torch.engine.shared_session import SharedSession
    from mlc_torch.running.batches import BatchReader

Tensors = dict[str, TensorState]
Results = tuple[TensorState, ...]


class Variant(Enum):
    """Which of a graph's nodes run."""

    whole = "whole"
    predict = "predict"
    """A training graph without its losses, for a forward pass that is given no labels."""

    __hash__ = object.__hash__  # Enum's own is written in Python, and a variant is looked up in every call


@dataclass(slots=True)
class Declared:
    """Tensors by the names that ``addInputs`` and ``addOutputs`` gave them."""

    inputs: Tensors = field(default_factory=dict)
    labels: Tensors = field(default_factory=dict)
    label_weights: Tensors = field(default_factory=dict)
    outputs: Tensors = field(default_factory=dict)
    kept: dict[int, TensorState] = field(default_factory=dict)
    """Results that ``resultTensors(for:)`` was asked for, by identity: each run keeps them."""

    def fed(self) -> list[tuple[str, Mapping[str, TensorState]]]:
        """What a call is given data for, by kind, in the order of a call's dictionaries."""
        return [("input", self.inputs), ("label", self.labels), ("label weight", self.label_weights)]

    def unread_by(self, nodes: Sequence[Node]) -> str:
        """In words, what is declared for a call and none of these reads."""
        read = {id(c) for node in nodes for c in node.reads}
        unread = [(f"{kind} {n!r}", c) for kind, cells in self.fed() for n, c in cells.items() if id(c) not in read]
        return "".join(f"; the {of} is declared with {c.label}, which nothing reads" for of, c in unread)

    def returns_inputs(self) -> bool:
        """Whether one of these is an output, too."""
        outputs = {id(cell) for cell in self.outputs.values()}
        return any(id(cell) in outputs for _, cells in self.fed() for cell in cells.values())

    def named(self) -> Iterator[tuple[str, str, TensorState]]:
        """Kind, name and tensor of everything."""
        for kind, tensors in [*self.fed(), ("output", self.outputs)]:
            for name, cell in tensors.items():
                yield kind, name, cell


@dataclass(frozen=True, slots=True)
class Compiled:
    """What the last ``compile`` was told, and found."""

    nodes: list[Node]
    options: Compile
    use_inductor: bool = False


@dataclass(slots=True)
class GradientState:
    """What is asked of a training graph's gradients."""

    to_stop: list[TensorState] = field(default_factory=list)
    stopped: list[TensorState] = field(default_factory=list)
    """``to_stop`` as the last compile found it."""
    to_train: list[MLCTensorParameter] = field(default_factory=list)
    trained: list[MLCTensorParameter] = field(default_factory=list)
    """``to_train`` as the last compile found it."""
    trained_cells: frozenset[int] = frozenset()
    """Which tensors those are, by identity."""
    moved: list[tuple[int, str]] = field(default_factory=list)
    """Those that updates move and that a call might be given data for: in which of its dictionaries, and their names."""
    from_user: dict[int, tuple[TensorState, TensorState]] = field(default_factory=dict)
    """For a result, by identity: itself, and the tensor that a gradient from outside is bound to."""
    watched: dict[int, TensorState] = field(default_factory=dict)
    """Tensors whose gradient somebody asked for, by identity."""
    pending: list[tuple[TensorState, Callable[[], MLCTensor | None]]] = field(default_factory=list)
    """Gradient tensors that the next gradient phase fills, with the tensor that it is the gradient of: those that were
    handed out before there was a gradient, as long as somebody holds them, and those that are outputs."""
    hooks: list[tuple[TensorState, Hook]] = field(default_factory=list)
    given: list[tuple[int, nn.Parameter]] = field(default_factory=list)
    """Parameters of modules that the program made itself, with the place of their gradient among the plan's."""


Usual = Callable[..., bool]
"""Takes the graph and the fields of a request; whether the call was usual, and is done."""


def never(*call: object) -> bool:
    """Stands where no call is known to be usual."""
    return False


@dataclass(slots=True)
class Runs:
    """What runs have left behind, and what the next one finds."""

    sessions: dict[Variant, Session] = field(default_factory=dict)
    last: Session | None = None
    """The session of the last forward pass of a training graph."""
    begun: int = 0
    """The place of the last pass that was to be differentiated, in the order of all forward passes, of other graphs too. It stays
    when that pass is gone: linked graphs must not go back without its gradient."""
    active: Session | None = None
    """The session of the last phase that was begun."""
    overtaken: Phase | None = None
    """How far the last pass of a training graph had come when an inference took its place; ``None`` where none has."""
    samples: int | None = None
    """How many samples the declared inputs hold; ``None`` until somebody asks."""
    axes: dict[int, Axis] | None = None
    """Which dimension of each tensor counts them, by the cell's identity; ``None`` until somebody asks."""
    forced_options: int = 0
    """Execution options that hold for every call, as long as a profile is taken."""
    shared: SharedSession | None = None
    """Where several processes share each batch: the newest session, once they have compiled together."""
    shared_number: int | None = None
    """Which of the graphs that they have compiled this is."""
    shown: dict[Variant, list[TensorState]] = field(default_factory=dict)
    """The tensors that the newest sessions give values to; it outlives them."""
    looked: bool = False
    """Whether the values of a first run were looked at since the last compile."""
    warned: set[str] = field(default_factory=set)
    """The causes that were warned of since the last compile."""
    lengths: dict[int, TensorState] = field(default_factory=dict)
    """Sequence lengths that were made from a tensor's descriptor, by that tensor's identity."""
    ordered: tuple[list[Node], list[Node]] = field(default_factory=lambda: ([], []))
    """The graph's nodes as they were found last, and in the order in which they run."""
    loss_results: dict[Form, Results] = field(default_factory=dict)
    """The result of the graph's own loss, by the predictions' shape and type."""
    returns_inputs: bool = False
    """Whether something that calls are given data for is a declared output, too, as the newest session found it."""
    usual: Usual = never
    """Runs an inference that is like the one before it; gives False, having done nothing, where that is not so."""
    usual_of: Session | None = None
    """The session whose inferences ``usual`` runs."""
    usuals: dict[int, Usual] = field(default_factory=dict)
    """Those of its batch sizes that have come twice."""
    sizes: set[int] = field(default_factory=set)
    """Those of inferences that took the road."""
    batch_reader: BatchReader | None = None
    """What gives ``step`` and ``fit`` the parts of a batch by name."""

    def may_differentiate(self) -> bool:
        """Whether a whole pass has a gradient, as far as is known."""
        session = self.sessions.get(Variant.whole)
        return session is None or session.differentiates

    def left_behind(self) -> Phase | None:
        """How far the last pass has come: what it left for the phases behind it is gone when an inference begins."""
        if self.last is None:
            return None
        return self.overtaken if self.last.phase is Phase.idle else self.last.phase

    def forget(self) -> None:
        """The graph has changed: the next run makes a new plan."""
        self.sessions = {}
        self.samples = self.axes = self.batch_reader = None
        self.forget_usual()

    def forget_usual(self) -> None:
        """No inference is usual any more: one of an older session would keep that alive."""
        self.usual, self.usual_of, self.usuals, self.sizes = never, None, {}, set()
