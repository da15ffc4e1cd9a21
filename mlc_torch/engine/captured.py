"""The captured gear: the phases of another gear recorded once as CUDA graphs and replayed. The default on CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mlc_torch.engine import recording
from mlc_torch.engine.capturing import NOTHING, Capturing
from mlc_torch.engine.gear import Forward, Gradients, Tensors
from mlc_torch.engine.updater import Updater


class Captured(Capturing):
    """Replays forward, gradient and update."""

    name = "captured"

    # The phases

    def forward(self, feeds: Tensors, constants: Tensors) -> Tensors:
        try:
            with recording.LOCK:
                return self._run_forward(feeds, constants)
        finally:
            self._block.wait_for_inputs()  # without the lock, since earlier work comes first

    def _run_forward(self, feeds: Tensors, constants: Tensors) -> Tensors:
        if self._by_slot:
            return self._run_from_slot(feeds)
        if not self._is_parted:
            self._part()
        self._take(feeds, constants)
        return self._replay()

    def _take(self, feeds: Tensors, constants: Tensors) -> None:
        """Bring everything to where the recordings read it."""
        updater, lends = self.updater, self._lends_numbers()
        if self._block.fill(feeds, updater.upcoming() if updater is not None and lends else ()):
            updater.numbers_are_there()  # type: ignore[union-attr]
        for old, new in zip(self._constants, constants, strict=True):
            if old.data_ptr() != new.data_ptr():
                old.copy_(new)
        self._masks.redraw()

    def _replay(self) -> Tensors:
        if self._forward is not None:
            self._forward.replay()
        return self._values

    def _run_from_slot(self, feeds: Tensors) -> Tensors:
        """The copy to the device is part of what is replayed."""
        block = self._block
        slot_number = block.stage(feeds, ())
        if slot_number is None:
            block.take(feeds)
            return self._replay()
        return self._replay_slot(slot_number)

    def _replay_slot(self, slot_number: int) -> Tensors:
        graph, values = self._by_slot[slot_number]
        if graph is not None:
            graph.replay()
        self._block.mark(slot_number)
        return values

    def forward_from(self, memory: Sequence[memoryview]) -> Forward | None:
        """``forward`` for inputs that always lie in the same memory of the host; ``None`` where it would gain nothing.

        (H200, µs for one sample of a perceptron, of which the GPU takes 14.2: through ``forward`` 18.5, through this 14.2.)
        """
        block = self._block
        if not self._by_slot or any(graph is None for graph, _ in self._by_slot):
            return None

        def forward(feeds: Tensors, constants: Tensors) -> Tensors:
            with recording.LOCK:
                slot_number = block.next_slot()
                block.fill_from(slot_number, memory)
                return self._replay_slot(slot_number)

        return forward

    def gradient(self, injected: Tensors) -> Gradients:
        with recording.LOCK:
            self._inject(injected)
            if self._backward is not None:
                self._backward.replay()
        return self.gradients

    def _inject(self, injected: Tensors) -> None:
        for static, given in zip(self.injected, injected, strict=True):
            if static is not given:
                static.copy_(given)

    def update(self, updater: Updater) -> None:
        """The optimizer's step; what it depends on besides its live numbers has a recording of its own."""
        if updater is not self.updater:
            self.updater, self._updates = updater, {}
            self._lends_numbers()
        graph = self._updates.get(updater.optimizer._configuration())
        with recording.LOCK:
            if graph is None:
                graph = self._tried(partial(self._record_update, updater))
            updater.prepare()
            if graph is not NOTHING:
                graph.replay()
        updater.count()

    # All of them

    def has_steps(self, updater: Updater | None) -> bool:
        """Whether all phases are one recording, with the update by ``updater``."""
        step = self._step
        return step is not None and updater is step.updater is self.updater and step.updater.optimizer._replayable

    def step(self, feeds: Tensors, constants: Tensors, injected: Tensors) -> Tensors:
        """What ``forward`` gives; the gradients are where they always are, and the update is made and counts."""
        assert self._step is not None
        updater = self._step.updater
        try:
            with recording.LOCK:
                if self._step.configuration != updater.optimizer._configuration():
                    self._capture(joined=True)
                self._take(feeds, constants)
                self._inject(injected)
                updater.prepare()
                self._step.graph.replay()
                updater.count()
            return self._values
        finally:
            self._block.wait_for_inputs()
