"""Pictures: what is in them, that they are well formed, and which tool draws them."""

from __future__ import annotations

import re
import stat
import sys
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from mlc_torch import MLCActivationLayer, MLCArithmeticLayer, MLCArithmeticOperation, MLCGraph
from mlc_torch.seeing import picture_dot, picture_svg
from mlc_torch.seeing.picture import picture_of
from tests.seeing.graphs import bare, dense, filled, perceptron, recurrent, residual, training

SVG = "{http://www.w3.org/2000/svg}"
GRAPHS = {"perceptron": perceptron, "residual": residual, "recurrent": recurrent}


@pytest.fixture
def without_dot(monkeypatch):
    """Pictures are laid out by grandalf, an extra; where it is missing the test says so and does not run."""
    pytest.importorskip("grandalf", reason="needs the extra viz")
    monkeypatch.setattr(picture_dot, "installed", lambda: False)


@pytest.fixture
def fake_dot(monkeypatch, tmp_path):
    """A ``dot`` that writes its arguments and its input."""
    tool = tmp_path / "bin" / "dot"
    tool.parent.mkdir()
    tool.write_text(
        f"#!{sys.executable}\nimport sys\nsys.stdout.write(' '.join(sys.argv[1:]) + '\\n' + sys.stdin.read())\n"
    )
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tool.parent))


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]


def boxes(svg: str) -> list[tuple[float, float, float, float]]:
    """Left, top, right, bottom of every box; the first rectangle is the background."""
    found = [
        {k: float(v) for k, v in r.attrib.items() if k in ("x", "y", "width", "height")}
        for r in ET.fromstring(svg).iter(f"{SVG}rect")
    ]
    return [(r["x"], r["y"], r["x"] + r["width"], r["y"] + r["height"]) for r in found[1:]]


def test_what_is_in_the_picture():
    built = recurrent()
    graph = training(built)
    graph.stopGradient(for_=built.graph.resultTensors(for_=built.graph.layers[0]))
    graph.addOutputs({"forecast": built.result})
    picture = picture_of(graph._facts())
    kinds = {box.title: box.kind for box in picture.boxes}
    assert kinds == {
        "series": "input",
        "memory": "layer",
        "Slice": "layer",
        "Reshape": "layer",
        "scale": "constant",
        "Arithmetic": "layer",
        "next": "layer",
        "target": "label",
        "Loss": "loss",
        "forecast": "output",
    }
    of = {box.key: box.title for box in picture.boxes}
    edges = {(of[e.tail], of[e.head]): e for e in picture.edges}
    assert len(edges) == len(picture.edges) == 9
    assert edges["series", "memory"].shape == "4×7×5"
    assert [pair for pair, edge in edges.items() if edge.stopped] == [("memory", "Slice")]


def test_undeclared_tensors_and_results_have_their_colours():
    graph, x = MLCGraph(), bare([2, 3])
    x.label = "x"
    y = graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[x, filled([2, 3], 1)])
    y.label = "y"
    assert {box.title: box.kind for box in picture_of(graph._facts()).boxes if box.title in "xy"} == {
        "x": "input",
        "y": "output",
    }
    assert [box.kind for box in picture_of(graph._facts()).boxes].count("constant") == 1


@pytest.mark.parametrize("name", GRAPHS)
def test_the_svg_shows_every_layer_apart_from_the_others(name, without_dot, tmp_path):
    graph = training(GRAPHS[name]())
    path = graph.draw(tmp_path / "graph.svg")
    svg = path.read_text(encoding="utf-8")
    shown = texts(svg)
    for layer in graph.layers:
        assert layer.label in shown and type(layer).__name__ in shown
    placed = boxes(svg)
    assert len(placed) == len(picture_of(graph._facts()).boxes)
    root = ET.fromstring(svg)
    width, height = float(root.get("width")), float(root.get("height"))
    for i, (left, top, right, bottom) in enumerate(placed):
        assert 0 <= left < right <= width and 0 <= top < bottom <= height
        for other in placed[:i]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
    assert len([p for p in root.iter(f"{SVG}path") if p.get("marker-end")]) == len(picture_of(graph._facts()).edges)


def test_lines_lead_downwards_from_box_to_box(without_dot):
    graph = training(residual())
    svg = graph._repr_svg_()
    placed = boxes(svg)
    for path in (p.get("d") for p in ET.fromstring(svg).iter(f"{SVG}path") if p.get("marker-end")):
        numbers = [float(n) for n in re.findall(r"-?\d+\.?\d*", path)]
        (x0, y0), (x1, y1) = numbers[:2], numbers[-2:]
        assert y0 < y1
        assert any(left <= x0 <= right and abs(bottom - y0) < 0.2 for left, _, right, bottom in placed)
        assert any(left <= x1 <= right and abs(top - y1) < 0.2 for left, top, right, _ in placed)


def test_a_chain_longer_than_python_calls_go_deep_is_one_column(without_dot, tmp_path):
    graph, x = MLCGraph(), bare([2, 3])
    for _ in range(1500):
        x = graph.node(MLCActivationLayer.tanh, source=x)
    limit = sys.getrecursionlimit()
    placed = boxes(graph.draw(tmp_path / "chain.svg").read_text(encoding="utf-8"))
    assert len(placed) == 1502 and sys.getrecursionlimit() == limit
    assert len({round(left + right) for left, _, right, _ in placed}) == 1
    rows = sorted(placed, key=lambda box: box[1])
    assert all(above[3] < below[1] for above, below in pairwise(rows))


def test_parts_without_a_line_between_them_stand_side_by_side(without_dot):
    graph, x, y = MLCGraph(), bare([2, 3]), bare([2, 3])
    for i in range(2):  # in turn, so that the parts are not one behind the other among the nodes
        x, y = (graph.node(dense(3, 3, f"{name}{i}"), source=source) for name, source in (("x", x), ("y", y)))
    placed = sorted(boxes(graph._repr_svg_()))
    left, right = placed[:4], placed[4:]
    assert len(right) == 4 and max(box[2] for box in left) < min(box[0] for box in right)
    assert sorted(round(box[1]) for box in left) == sorted(round(box[1]) for box in right)


def test_a_stopped_gradient_is_dashed(without_dot):
    built = perceptron()
    graph = training(built)
    assert "stroke-dasharray" not in graph._repr_svg_()
    graph.stopGradient(for_=built.graph.resultTensors(for_=built.graph.layers[0]))
    assert graph._repr_svg_().count("stroke-dasharray") == 1
    assert picture_dot.text(picture_of(graph._facts())).count("style=dashed") == 1


def test_pictures_repeat(without_dot):
    graph = training(residual())
    assert graph._repr_svg_() == graph._repr_svg_()


def test_odd_labels_are_only_text(without_dot, tmp_path):
    graph, x = MLCGraph(), bare([2, 3])
    graph.node(dense(3, 3, '<b>&"\\\n\x00 ü'), source=x)
    assert '<b>&"\\\\n\\x00 ü' in texts(graph._repr_svg_())
    dot = graph.draw(tmp_path / "odd.dot").read_text(encoding="utf-8")
    assert "&lt;b&gt;&amp;&quot;\\\\n\\x00 ü" in dot and "\x00" not in dot


def test_tensors_side_by_side_each_have_a_line(without_dot):
    graph, x = MLCGraph(), bare([2, 3])
    graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.multiply), sources=[x, x])
    svg = graph._repr_svg_()
    starts = [p.get("d").split(" C")[0] for p in ET.fromstring(svg).iter(f"{SVG}path") if p.get("marker-end")]
    assert len(starts) == 3 and len(set(starts)) == 3


def test_unconnected_parts_stand_beside_each_other(without_dot):
    graph = MLCGraph()
    for _ in range(3):
        graph.node(dense(3, 3, "alone"), source=bare([2, 3]))
    tops = [box[1] for box in boxes(graph._repr_svg_())]
    assert len(set(tops)) == 3  # inputs, layers, outputs


def test_a_deep_graph_is_drawn(without_dot):
    graph, y = MLCGraph(), bare([1, 4])
    for i in range(120):
        z = graph.node(dense(4, 4, f"d{i}"), source=y)
        y = graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[y, z])
    before = sys.getrecursionlimit()
    assert len(boxes(graph._repr_svg_())) == 242
    assert sys.getrecursionlimit() == before


def test_dot_draws_where_it_is_installed(fake_dot, tmp_path):
    graph = training(perceptron())
    drawn = graph.draw(tmp_path / "graph.svg").read_text(encoding="utf-8")
    assert drawn.startswith("-Tsvg\ndigraph MLCGraph {") and "hidden" in drawn
    assert graph._repr_svg_() == drawn
    assert graph.draw(tmp_path / "graph.png").read_bytes().startswith(b"-Tpng -Gdpi=144\ndigraph")
    assert graph.draw(str(tmp_path / "graph.PDF")).read_bytes().startswith(b"-Tpdf\n")


def test_a_dot_that_fails_is_told(fake_dot, tmp_path, monkeypatch):
    tool = tmp_path / "bin" / "dot"
    tool.write_text(f"#!{sys.executable}\nimport sys\nsys.stderr.write('no fonts')\nsys.exit(3)\n")
    with pytest.raises(RuntimeError, match="no fonts"):
        training(perceptron()).draw(tmp_path / "graph.svg")
    assert not (tmp_path / "graph.svg").exists()


def test_the_dot_file_names_every_box_and_edge(tmp_path):
    graph = training(residual())
    lines = graph.draw(tmp_path / "graph.dot").read_text(encoding="utf-8").splitlines()
    picture = picture_of(graph._facts())
    assert sum(" -> n" in line and "[label=" in line and not line.strip().startswith("n1 [") for line in lines) >= 1
    for box in picture.boxes:
        assert sum(line.startswith(f"  {box.key} [label=<") for line in lines) == 1
    for edge in picture.edges:
        assert any(line.startswith(f"  {edge.tail} -> {edge.head} [") for line in lines)


def test_a_png_has_its_pixels(without_dot, tmp_path):
    pytest.importorskip("resvg_py", reason="needs the extra viz")
    content = training(perceptron()).draw(tmp_path / "graph.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n") and len(content) > 5000


def test_what_cannot_be_drawn_is_said(without_dot, tmp_path, monkeypatch):
    graph = training(perceptron())
    with pytest.raises(ValueError, match=r"\.svg, \.png, \.pdf or \.dot"):
        graph.draw(tmp_path / "graph.jpg")
    for wrong in (5, None, b"graph.svg"):
        with pytest.raises(
            TypeError, match=rf"MLCTrainingGraph.draw: argument 'path' expects a path .*, got {wrong!r}"
        ):
            graph.draw(wrong)
    with pytest.raises(ValueError, match="no file can be called so"):
        graph.draw("a\0.svg")
    with pytest.raises(ValueError, match="no nodes"):
        MLCGraph().draw(tmp_path / "graph.svg")
    with pytest.raises(RuntimeError, match="Graphviz"):
        graph.draw(tmp_path / "graph.pdf")
    monkeypatch.setattr(picture_svg, "installed", lambda: False)
    with pytest.raises(RuntimeError, match="python -m pip install grandalf resvg_py"):
        graph.draw(tmp_path / "graph.svg")
    assert graph._repr_svg_() is None and MLCGraph()._repr_svg_() is None
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    monkeypatch.setattr(picture_svg, "installed", lambda: True)
    with pytest.raises(RuntimeError, match="resvg_py"):
        graph.draw(tmp_path / "graph.png")
    assert not list(tmp_path.iterdir())
