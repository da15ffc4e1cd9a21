"""Profiling by layer: every layer has its time, the trace names it, and the graph is as before."""

from __future__ import annotations

import gzip
import json

import pytest
import torch

from mlc_torch import MLCActivationLayer, MLCDevice, MLCExecutionOptions, MLCGraph, MLCInferenceGraph
from mlc_torch.seeing.profile import Profile, _in_turn
from mlc_torch.testing import device_named
from tests.seeing.graphs import Built, bare, data, dense, perceptron, residual, step, training


def test_every_layer_has_its_time():
    built = residual()
    graph = training(built)
    with graph.profile() as report:
        for _ in range(3):
            step(graph, built)
    assert [row.number for row in report.layers] == list(range(1, 23))
    assert [row.label for row in report.layers] == [layer.label for layer in graph.layers]
    assert all(row.calls == 3 and row.forward > 0 for row in report.layers)
    assert all(row.backward > 0 for row in report.layers)
    assert report.total == pytest.approx(sum(r.forward + r.backward for r in report.layers) + report.elsewhere)
    lines = str(report).splitlines()
    assert lines[0].startswith("MLCTrainingGraph on cpu: ") and "block3.conv2" in str(report)
    shares = [float(row[-1].rstrip("%")) for row in report.rows]
    assert sum(shares) + 100 * report.elsewhere / report.total == pytest.approx(100, abs=2)
    assert "<table>" in report._repr_html_()


def test_a_costly_layer_has_the_largest_share():
    graph, x = MLCGraph(), bare([256, 64])
    y = graph.node(MLCActivationLayer.relu, source=x)
    y = graph.node(dense(64, 2048, "wide"), source=y)
    y = graph.node(dense(2048, 1024, "heavy"), source=y)
    built = Built(graph, {"x": x}, y, {"t": bare([256, 1024])})
    made = training(built)
    step(made, built, [MLCExecutionOptions.perLayerProfiling])
    # A busy host stops a process for longer than either layer takes: the least of several steps is what a layer needs.
    reports = [made.profile(lambda: step(made, built)) for _ in range(5)]
    least = {rows[0].label: min(row.total for row in rows) for rows in zip(*(r.layers for r in reports), strict=True)}
    assert max(least, key=lambda label: least[label]) == "heavy"


def test_layers_with_one_label_are_told_apart():
    graph, x = MLCGraph(), bare([4, 8])
    y = x
    for _ in range(3):
        y = graph.node(MLCActivationLayer.tanh, source=y)
    made = MLCInferenceGraph(graphObjects=[graph])
    made.addInputs({"x": x})
    made.compile(options=[], device=MLCDevice.cpu())
    report = made.profile(lambda: [made.execute(inputsData={"x": data([4, 8])}, batchSize=4) for _ in range(2)])
    assert [(row.label, row.calls) for row in report.layers] == [("Activation", 2)] * 3
    assert all(row.backward == 0 for row in report.layers)


def test_shared_labels_go_round():
    turn = _in_turn(["a", "b", "a", "loss"])
    assert [turn(label) for label in ("a", "b", "a", "a", "b", "a", "loss", "a", "no")] == [
        0,
        1,
        2,
        0,
        1,
        2,
        3,
        0,
        None,
    ]


def test_the_trace_names_the_layers(tmp_path):
    built = perceptron()
    graph = training(built)
    report = graph.profile(lambda: step(graph, built))
    path = report.save_chrome_trace(tmp_path / "trace.json")
    names = {event.get("name") for event in json.loads(path.read_text(encoding="utf-8"))["traceEvents"]}
    assert {"mlc::hidden", "mlc::Activation", "mlc::scores", "mlc::Loss"} <= names


@pytest.mark.parametrize("path", ["missing/trace.json", "."])
def test_a_trace_that_cannot_be_written(tmp_path, path):
    report = training(perceptron()).profile(lambda: None)
    with pytest.raises(OSError, match=str(tmp_path)):
        report.save_chrome_trace(tmp_path / path)
    assert not list(tmp_path.iterdir())


def test_a_trace_that_torch_does_not_write(tmp_path, monkeypatch):
    report = training(perceptron()).profile(lambda: None)
    monkeypatch.setattr(report._profiler, "export_chrome_trace", lambda path: None)
    with pytest.raises(OSError, match="torch could not write the trace"):
        report.save_chrome_trace(tmp_path / "trace.json")
    assert not list(tmp_path.iterdir())


def test_a_trace_is_written_as_often_as_asked(tmp_path):
    """torch itself refuses to write it a second time."""
    built = perceptron()
    graph = training(built)
    report = graph.profile(lambda: step(graph, built))
    with pytest.raises(FileNotFoundError, match=r"missing.again\.json"):
        report.save_chrome_trace(tmp_path / "missing" / "again.json")
    one = report.save_chrome_trace(tmp_path / "one.json")
    first = one.read_bytes()
    (tmp_path / "link.json").symlink_to(one)
    report.save_chrome_trace(tmp_path / "link.json")
    report.save_chrome_trace(tmp_path / "two.json.gz")
    assert "mlc::hidden" in {event.get("name") for event in json.loads(first)["traceEvents"]}
    assert one.read_bytes() == first == gzip.decompress((tmp_path / "two.json.gz").read_bytes())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.json", "one.json", "two.json.gz"]
    assert (tmp_path / "link.json").is_symlink()


def test_a_trace_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    old = tmp_path / "trace.json"
    old.write_text("old", encoding="utf-8")
    report = training(perceptron()).profile(lambda: None)
    monkeypatch.setattr(report._profiler, "export_chrome_trace", lambda path: None)
    with pytest.raises(OSError, match="torch could not write the trace"):
        report.save_chrome_trace(old)
    assert old.read_text(encoding="utf-8") == "old"


@pytest.mark.parametrize("path", [5, None, b"trace.json"])
def test_a_trace_goes_to_a_path(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    report = training(perceptron()).profile(lambda: None)
    with pytest.raises(TypeError, match=r"Profile.save_chrome_trace: argument 'path' expects a path"):
        report.save_chrome_trace(path)
    assert not list(tmp_path.iterdir())


def test_the_graph_trains_on_as_if_nothing_had_been():
    built, other = perceptron(), perceptron()
    for mine, theirs in zip(built.graph.layers, other.graph.layers, strict=True):
        for a, b in zip(mine._parameter_uses, theirs._parameter_uses, strict=True):
            b.cell.value.copy_(a.cell.value)
    graph, plain = training(built), training(other)
    step(plain, other)
    graph.profile(lambda: step(graph, built))
    assert graph._runs.last.gear.why == "profiling layer by layer"
    for made, its in ((graph, built), (plain, other)):
        step(made, its)
    assert (graph.summary().gear, graph.summary().why) == ("planned", "")
    for mine, theirs in zip(built.graph.layers, other.graph.layers, strict=True):
        for a, b in zip(mine._parameter_uses, theirs._parameter_uses, strict=True):
            torch.testing.assert_close(a.cell.value, b.cell.value, rtol=1e-5, atol=1e-7)


def test_an_error_inside_ends_the_profile():
    built = perceptron()
    graph = training(built)
    report = graph.profile()

    def breaks_off():
        with report:
            step(graph, built)
            raise KeyError("mine")

    with pytest.raises(KeyError):
        breaks_off()
    assert len(report.layers) == 4
    step(graph, built)
    assert graph.summary().gear == "planned"


def test_mistakes_are_told(tmp_path):
    graph = training(perceptron())
    report = graph.profile()
    assert isinstance(report, Profile) and str(report) == "profiling has not ended"
    with pytest.raises(RuntimeError, match="with block"):
        report.save_chrome_trace(tmp_path / "trace.json")
    with report, pytest.raises(RuntimeError, match="already"):
        graph.profile().__enter__()
    with pytest.raises(RuntimeError, match="once"):
        report.__enter__()


def test_on_every_device_the_heavy_layers_have_times(torch_device):
    built = residual()
    graph = training(built, device_named(torch_device.type))
    step(graph, built)
    with graph.profile() as report:
        for _ in range(2):
            step(graph, built)
    assert ("(GPU time)" in report.title) == (torch_device.type == "cuda")
    convolutions = [row for row in report.layers if row.layer == "MLCConvolutionLayer"]
    assert len(convolutions) == 10 and all(row.calls == 2 and row.forward > 0 < row.backward for row in convolutions)


def test_what_is_no_function_is_not_called():
    with pytest.raises(TypeError, match="profile: argument 'work' expects a function without arguments, got 5"):
        training(perceptron()).profile(5)
