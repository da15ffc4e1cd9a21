"""Ranks that part ways for good: whatever one does, the other is told, and no process crashes or waits beyond the limit.

Each case is a pair of processes of its own, forked from one that has loaded everything, and all pairs run at once: most of
the time they wait. Prints what each rank came to, by case.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nets
import numpy as np
import pytest
import torch
import torch.distributed as dist

import mlc_torch as mlc
from mlc_torch import ranks
from mlc_torch.interop import load_checkpoint, save_checkpoint
from mlc_torch.running import sharing  # noqa: F401 - so that no process has to load it by itself

warnings.simplefilter("ignore")
torch.set_num_threads(1)
FOLDER = Path(os.environ["CHECKS"])
PORT = FOLDER / "port"
SYNCHRONOUS = [mlc.MLCExecutionOptions.synchronous]
ALONE = mlc.MLCDevice.cpu()
Case = Callable[[int], Any]


def joined() -> Any:
    return mlc.unwrap(mlc.MLCDevice(type=mlc.MLCDeviceType.cpu, selectsMultipleComputeDevices=True))


def perceptron() -> Any:
    net = nets.perceptron(joined())
    net.given = net.batches(4)
    assert net.step(net.given[0])[0]
    return net


def different_calls(rank: int) -> None:
    net = perceptron()
    if rank:
        net.bind(net.given[0])
        net.training.executeForward(batchSize=8, options=SYNCHRONOUS)
    else:
        net.step(net.given[1])


def different_graphs(rank: int) -> None:
    first, second = perceptron(), nets.convolutional(joined())
    if rank:
        second.step(second.batches(1)[0])
    else:
        first.step(first.given[1])


def a_compile_beside_a_step(rank: int) -> None:
    net = perceptron()
    if rank:
        net.training.compile(options=[], device=net.device)
    else:
        net.step(net.given[1])


def fewer_batches(rank: int) -> None:
    net = perceptron()
    pairs = [(arrays["x"], arrays["t"]) for arrays in net.given]
    net.training.fit(pairs[rank:], epochs=1, progress=False)


def an_interruption_that_is_caught(rank: int) -> None:
    net = perceptron()
    if rank:

        def interrupt(*_: Any) -> None:
            raise KeyboardInterrupt

        hook = net.graph.layers[1].module.register_forward_hook(interrupt)
        try:
            net.step(net.given[1])
        except KeyboardInterrupt:
            hook.remove()
    net.step(net.given[1])


def a_handler_that_exits(rank: int) -> None:
    net = perceptron()

    def handler(*_: Any) -> None:
        if rank:
            os._exit(0)

    net.training.execute(**net.data(net.given[1]), batchSize=8, options=SYNCHRONOUS, completionHandler=handler)
    with pytest.raises(mlc.RanksLost, match="another process is gone or too late"):
        net.step(net.given[1])
    rescued(net)


def rescued(net: Any) -> None:
    """What is left of the training can be saved, and what cannot be written is told as what it is."""
    file = FOLDER / "rescued.safetensors"
    save_checkpoint(net.training, file)
    wanted = net.numbers_now()
    alone = nets.perceptron(ALONE)
    assert not (wanted[0] == alone.numbers_now()[0]).all()
    load_checkpoint(alone.training, file, resume=False)
    assert all((a == b).all() for a, b in zip(wanted, alone.numbers_now(), strict=True))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        save_checkpoint(net.training, FOLDER / "nowhere" / "a.safetensors")


def interrupted_while_it_waits(rank: int, call: Callable[[], Any]) -> None:
    """Rank 1 comes when Ctrl-C has struck rank 0, which waits for it: it is raised then."""
    struck = FOLDER / f"struck {os.environ['TORCHELASTIC_RESTART_COUNT']}"
    if rank:
        while not struck.exists():
            time.sleep(0.02)
        call()
        return

    main = threading.get_ident()

    def strike() -> None:
        while not is_waiting(sys._current_frames()[main]):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)
        struck.touch()

    threading.Thread(target=strike).start()
    with pytest.raises(KeyboardInterrupt):
        call()


def is_waiting(frame: Any) -> bool:
    """Whether a thread that stands here waits for other ranks."""
    while frame is not None and frame.f_code.co_filename != ranks.__file__:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name in ("told", "wait", "sum_inside")


def an_interruption_of_a_compile(rank: int) -> None:
    net = perceptron()
    interrupted_while_it_waits(rank, lambda: net.training.compile(options=[], device=net.device))
    net.step(net.given[1])


def an_interruption_of_a_rank_that_refused(rank: int) -> None:
    """It takes part in two sums of the forward pass without having computed it, and is interrupted behind the first."""
    net = nets.Net(6)
    net.classes(4)
    x = nets.batch_norm(net, net.convolution(net.input(2, 4, 4), 2, 4))
    net.dense(net.reshape(nets.batch_norm(net, net.convolution(x, 4, 4)), 6, 64), 64, 4)
    net.compile(joined(), nets.loss(), nets.sgd())
    (given,) = net.batches(1)
    interrupted_while_it_waits(rank, lambda: net.step(given, 6 if rank else 1000))
    net.step(given)


def made_by_the_program(rank: int) -> None:
    """A process group with torch's own limit. The store is one for all pairs, so each names its part of it."""
    store = dist.TCPStore("127.0.0.1", int(PORT.read_text()))
    case = os.environ["TORCHELASTIC_RESTART_COUNT"]
    dist.init_process_group("gloo", store=dist.PrefixStore(f"by itself {case}", store), rank=rank, world_size=2)


def a_group_of_the_program_s(rank: int) -> None:
    """Joined without torchrun's words, and with a limit of its own, of half an hour: ours holds for what we send."""
    made_by_the_program(rank)
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        del os.environ[name]
    device = joined()
    assert (device.rank, device.rank_count) == (rank, 2)
    net = nets.convolutional(device, norm=nets.batch_norm)  # whose forward pass begins with a sum
    if rank:
        time.sleep(ranks.timeout() + 4)
    else:
        net.step(net.batches(1)[0])


def a_group_that_is_destroyed(rank: int) -> None:
    """Told in words, and when there is one again training goes on."""
    net = perceptron()
    dist.destroy_process_group()
    if torch.__version__ < "2.7":  # there our groups end with the one of all
        for again in (lambda: None, lambda: made_by_the_program(rank)):
            again()
            with pytest.raises(
                mlc.RanksLost, match=f"rank {rank} of 2, in compile of graph 1: the program has destroyed"
            ):
                net.training.compile(options=[], device=net.device)
        return
    assert net.training.compile(options=[], device=net.device) and net.step(net.given[1])[0]  # over what we hold
    second = nets.Net(6)
    second.targets(3)
    second.dense(second.input(6), 6, 3)
    loss = nets.loss(mlc.MLCLossType.meanSquaredError)
    words = f"rank {rank} of 2, in compile of graph 2: the program has destroyed torch.distributed's"
    with pytest.raises(mlc.RanksLost, match=words):  # it needs groups of its own
        second.compile(net.device, loss, nets.sgd())
    made_by_the_program(rank)
    assert second.training.compile(options=[], device=net.device), mlc.last_refusal()
    (given,) = second.batches(1)
    weights, bias = (a.astype(np.float64) for a in second.numbers_now())
    answer, value, _ = second.step(given)
    by_hand = given["x"].reshape(6, 6) @ weights.reshape(3, 6).T + bias.reshape(1, 3)
    np.testing.assert_allclose(value, ((by_hand - given["t"].reshape(6, 3)) ** 2).mean(), rtol=1e-5)
    assert answer


def a_share_of_everything(rank: int) -> None:
    """One process that shares with nobody draws, computes and updates to the bit what an ordinary one does."""
    for options in ([], [mlc.MLCGraphCompilationOptions.disableLayerFusion]):
        for seed in (0, 3):
            assert of_twenty_steps(ALONE, seed, options) == of_twenty_steps(joined(), seed, options)


def of_twenty_steps(device: Any, seed: int, options: Any) -> list[bytes]:
    """Losses and weights of a network with dropout and clipping, by ``execute`` and by phases, short batches between."""
    found = []
    for how in ("step", "phases"):
        mlc.MLCPlatform.setRNGSeedTo(5)
        net = nets.dropping(device, seed=seed, options=options)
        mlc.MLCPlatform.setRNGSeedTo(9)
        batches = net.batches(4)
        for n in range(20):
            came = getattr(net, how)(batches[n % 4], (7, 7, 6, 5)[n % 4])
            found.append((came if how == "phases" else came[1]).tobytes())
        found += [a.tobytes() for a in net.numbers_now()]
    return found


CASES: dict[Case, int] = {
    different_calls: 2,
    different_graphs: 2,
    a_compile_beside_a_step: 2,
    fewer_batches: 2,
    an_interruption_that_is_caught: 2,
    a_handler_that_exits: 2,
    an_interruption_of_a_compile: 2,
    an_interruption_of_a_rank_that_refused: 2,
    a_group_of_the_program_s: 2,
    a_group_that_is_destroyed: 2,
    a_share_of_everything: 1,
}


def run(case: Case, rank: int, world: int) -> None:
    while not PORT.exists():
        time.sleep(0.02)
    given = {"RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": PORT.read_text()}
    given["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # the store outlives them all, as torchrun's does
    given["TORCHELASTIC_RESTART_COUNT"] = list(CASES).index(case)  # to each pair its own part of it
    os.environ |= {name: str(value) for name, value in given.items()}
    try:
        case(rank)
        came = "the end"
    except mlc.RanksLost as lost:
        came = f"RanksLost: {lost}"
    except BaseException:  # noqa: BLE001 - reported to the test
        came = traceback.format_exc()
    (FOLDER / f"{case.__name__}-{rank}.txt").write_text(came, "utf-8")


def main() -> None:
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell has it ignored by what it starts in the background
    started = {}
    for case, world in CASES.items():
        for rank in range(world):
            process = os.fork()
            if not process:
                run(case, rank, world)
                ranks._leave()  # as at an ordinary end, which is not for a fork to come to
                os._exit(0)
            started[case.__name__, rank] = process
    # Only now: it has a thread, and a process must not be forked from several.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    written = PORT.with_suffix(".new")
    written.write_text(str(store.port), "utf-8")
    written.rename(PORT)
    codes = {key: os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for key, process in started.items()}
    found: dict[str, list[Any]] = {}
    for (name, rank), code in codes.items():
        file = FOLDER / f"{name}-{rank}.txt"
        found.setdefault(name, []).append([code, file.read_text("utf-8") if file.exists() else "gone"])
    (FOLDER / "found.json").write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    main()
