"""``summary()``: the numbers in the table against sums done by hand, and what it says about how the graph runs."""

from __future__ import annotations

import pytest
import torch

from mlc_torch import MLCDevice, MLCGraph, MLCGraphCompilationOptions, MLCInferenceGraph
from mlc_torch.running.state import Variant
from mlc_torch.seeing.table import Table, in_bytes, in_seconds
from tests.seeing.graphs import bare, batch_norm, data, dense, perceptron, recurrent, residual, step, training


def notes(report: Table) -> dict[str, str]:
    return dict(report.notes)


def test_the_rows_of_a_perceptron():
    built = perceptron()
    report = training(built).summary()
    assert report.rows == [
        ("1", "MLCFullyConnectedLayer", "hidden", "features", "[8, 16, 1, 1]", "208", "512"),
        ("2", "MLCActivationLayer", "Activation", "#1", "[8, 16, 1, 1]", "", "512"),
        ("3", "MLCFullyConnectedLayer", "scores", "#2", "[8, 3, 1, 1]", "51", "96"),
        ("4", "MLCLossLayer", "Loss", "#3, target", "[1]", "", "4"),
    ]
    assert report.parameters == 12 * 16 + 16 + 16 * 3 + 3 == report.trained
    assert report.result_bytes == 4 * (8 * 16 * 2 + 8 * 3 + 1)
    said = notes(report)
    assert said["parameters"] == "259 (1.0 KiB): 259 trained, 0 frozen"
    assert said["inputs"] == "features [8, 12, 1, 1] float32" and said["labels"] == "target [8, 3] float32"
    assert "meanSquaredError" in said["loss"] and said["optimizer"] == "MLCAdamOptimizer, learning rate 0.01"
    assert said["device"] == "cpu"


def test_the_text_is_a_table_with_even_columns():
    text = str(training(residual()).summary())
    assert repr(training(residual()).summary()).splitlines()[0] == "MLCTrainingGraph: 22 nodes"
    lines = text.splitlines()
    rule = next(i for i, line in enumerate(lines) if line.startswith("--"))
    starts = [i for i, c in enumerate(lines[rule]) if c == "-" and (i == 0 or lines[rule][i - 1] == " ")]
    assert all(
        line[start - 1] == " " for line in lines[rule + 1 : rule + 23] for start in starts[1:] if len(line) >= start
    )
    assert "block2.shortcut" in text and "statistics  224 (896 B)" in text


def test_a_notebook_gets_html():
    html = training(recurrent()).summary()._repr_html_()
    assert html.count("<tr>") == html.count("</tr>") and '<td style="text-align:left">memory</td>' in html
    odd = Table("<title>", ("a",), [("<b>",)], [("n", "x & y")])._repr_html_()
    assert "&lt;title&gt;" in odd and "&lt;b&gt;" in odd and "x &amp; y" in odd


def test_frozen_parameters_are_told_from_trained_ones():
    built = perceptron()
    first = built.graph.layers[0]
    first.weightsParameter.isUpdatable = False
    report = training(built).summary()
    assert (report.parameters, report.trained) == (259, 259 - 12 * 16)
    assert notes(report)["parameters"].endswith("67 trained, 192 frozen")


def test_a_layer_used_twice_counts_once():
    graph, x = MLCGraph(), bare([2, 4])
    shared = dense(4, 4, "shared")
    graph.node(shared, source=graph.node(shared, source=x))
    report = graph.summary()
    assert report.parameters == 4 * 4 + 4
    assert [row[5] for row in report.rows] == ["20", "as #1"]


def test_one_of_several_results_is_named():
    graph, x = MLCGraph(), bare([2, 6])
    first, second = graph.split(source=x, splitCount=2, dimension=1)
    graph.concatenate(sources=[second, first], dimension=1)
    assert graph.summary().rows[1][3] == "#1.1, #1.0"


def test_what_runs_it_and_why():
    built = perceptron()
    assert built.graph.summary().why.startswith("an MLCGraph only records")
    assert notes(built.graph.summary())["device"] == "none yet"
    graph = training(built, compiled=False)
    assert (graph.summary().gear, graph.summary().why) == ("none", "not compiled")
    assert graph.summary().trained is None
    graph.compile(options=[], device=MLCDevice.cpu())
    assert notes(graph.summary())["gear"] == "planned"


def test_a_graph_that_lacks_inputs_says_so():
    built = perceptron()
    graph = MLCInferenceGraph(graphObjects=[built.graph])
    graph.compile(options=[], device=MLCDevice.cpu())
    assert "addInputs" in graph.summary().why


@pytest.mark.parametrize("option", ["debugLayers", "disableLayerFusion"])
def test_compile_options_are_a_reason_to_run_plain(option):
    graph = training(perceptron(), options=[getattr(MLCGraphCompilationOptions, option)])
    assert notes(graph.summary())["gear"] == "plain: compiled with debugLayers or disableLayerFusion"


def test_hooks_are_a_reason_to_run_plain():
    built = perceptron()
    graph = training(built)
    hook = built.graph.layers[1].module.register_forward_hook(lambda *_: None)
    step(graph, built)
    assert notes(graph.summary())["gear"] == "plain: hooks are registered on a layer's module"
    hook.remove()
    step(graph, built)
    assert notes(graph.summary())["gear"] == "planned"
    graph.register_gradient_hook(built.result, lambda gradient: None)
    assert "next execute" in graph.summary().why
    step(graph, built)
    assert notes(graph.summary())["gear"] == "plain: gradient hooks are registered"


def test_a_summary_changes_nothing():
    built = residual()
    graph = training(built)
    before = [use.cell.value.clone() for layer in graph.layers for use in layer._parameter_uses]
    session = graph._runs.sessions[Variant.whole]
    str(graph.summary())
    assert graph._runs.sessions[Variant.whole] is session
    after = [use.cell.value for layer in graph.layers for use in layer._parameter_uses]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_inference_graphs_and_outputs():
    built = recurrent()
    graph = MLCInferenceGraph(graphObjects=[built.graph])
    graph.addInputs(built.inputs)
    graph.addOutputs({"forecast": built.result})
    graph.compile(options=[], device=MLCDevice.cpu())
    graph.execute(inputsData={"series": data([4, 7, 5])}, batchSize=4)
    said = notes(graph.summary())
    assert said["outputs"] == "forecast [4, 2] float32" and said["parameters"] == "302 (1.2 KiB)"
    assert graph.summary().rows[3][3] == "#3, scale"


def test_an_empty_graph_has_a_summary():
    assert str(MLCGraph().summary()).startswith("MLCGraph: 0 nodes")


def test_statistics_are_no_parameters():
    graph = MLCGraph()
    graph.node(batch_norm(5, "norm"), source=bare([2, 5, 3, 3]))
    assert graph.summary().parameters == 10 and notes(graph.summary())["statistics"] == "10 (40 B)"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 20, "3.0 MiB"), (5 << 40, "5.0 TiB")]
)
def test_bytes_for_people(count, text):
    assert in_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0.00 µs"), (1.23e-5, "12.3 µs"), (0.456, "456 ms"), (12.34, "12.3 s")]
)
def test_seconds_for_people(seconds, text):
    assert in_seconds(seconds) == text
