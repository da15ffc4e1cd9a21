"""Compiled programs: Swift's semantics, memory, threads, refusals, signals, and which Python they use."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mlc_torch.swift import cache
from mlc_torch.swift.libpython import libpython
from tests.swift.toolbox import HERE, command, complaints, environment, hosted, interrupted, run, swift, written

pytestmark = pytest.mark.swift

BEHAVIOUR = HERE / "behaviour"


@pytest.mark.parametrize("gpu", [{}, {"MLC_TORCH_GPU": "cpu"}], ids=["no-gpu", "gpu-is-cpu"])
@pytest.mark.parametrize(
    "how", [["--swiftc=-swift-version", "--swiftc=5"], ["-O", "--swiftc=-swift-version", "--swiftc=6"]]
)
def test_semantics(how, gpu):
    """Without a warning, in both language modes and both ways to compile."""
    done = run(BEHAVIOUR / "semantics.swift", *how, "--swiftc=-warnings-as-errors", **gpu)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if not line.startswith("ok  ")] == []
    calls = len(re.findall(r'check\("', (BEHAVIOUR / "semantics.swift").read_text("utf-8")))
    unreached = 3 - bool(gpu)  # two stand for the other branch of a check, one needs a device
    assert len(done.stdout.splitlines()) == calls - unreached
    assert ("MLC_TORCH_GPU=cpu: what asks for a GPU is computed on the CPU" in done.stderr) == bool(gpu)


@pytest.mark.parametrize("how", [[], ["-O"]], ids=["Onone", "O"])
def test_nothing_leaks_and_threads_come_and_go(how):
    done = run(BEHAVIOUR / "leaks.swift", *how)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    grown = int(first.split()[1])
    assert first.endswith("closures 0 freed true") and grown < 1024, first  # 6000 rounds: less than a byte in five
    assert second == "threads done, closures 0"


# Refusals and ends


def trap(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return run(BEHAVIOUR / "traps.swift", "--", *words, **more)


def test_refusals_are_seen_once_and_counted():
    done = trap("refusals")
    assert done.returncode == 0 and done.stdout == "before, with a line\nand without"
    text = "refused: MLCTensorDescriptor(shape:dataType:): every dimension of shape must be at least 1, got"
    assert complaints(done) == [
        f"MLCompute: {text} [0]",
        f"MLCompute: {text} [-1]",
        f"MLCompute: {text} [0] (and 2 more times)",
    ]


@pytest.mark.parametrize("strict", [{}, {"MLC_TORCH_STRICT": "1"}], ids=["", "strict"])
def test_an_initializer_that_cannot_answer_nil_ends_the_program(strict):
    done = trap("initializer", **strict)
    assert done.returncode == 70
    assert "MLCTensor(shape:dataType:)" in done.stderr.splitlines()[-1]
    assert "every dimension of shape must be at least 1, got [0]" in done.stderr


def test_an_error_in_the_bridge_is_not_silent():
    done = trap("exception")
    assert done.returncode == 70
    assert done.stderr.endswith("MLCompute: MLCDevice(gpuDevices:) takes the devices of MTLCopyAllDevices()\n")


def test_a_python_exception_ends_the_program_with_its_message(tmp_path):
    broken = written(tmp_path, a="import MLCompute\nprint(1)\nprint(MLCTensor(shape: [2]).descriptor.shape)\nprint(2)")
    (tmp_path / "broken_by_us.py").write_text(
        "import mlc_torch\n"
        "def shape(self): raise RuntimeError('quite broken')\n"
        "mlc_torch.MLCTensorDescriptor.shape = property(shape)\n"
    )
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Late:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'mlc_torch.swift.inside':\n"
        "            import broken_by_us\n"
        "sys.meta_path.insert(0, Late())\n"
    )
    with_hook = {"PYTHONPATH": f"{tmp_path}:{environment()['PYTHONPATH']}"}
    done = subprocess.run(
        command("run", broken / "a.swift"), env=environment() | with_hook, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 70 and done.stdout == "1\n"
    assert "RuntimeError: quite broken" in done.stderr
    assert done.stderr.endswith("MLCompute: MLCTensorDescriptor.shape: Python raised the error above\n")


@pytest.mark.parametrize(
    ("how", "said"), [("trap", "Unexpectedly found nil"), ("handler", "Fatal error: in a handler")]
)
def test_a_trap_shows_swifts_own_report_and_what_was_printed(how, said):
    done = trap(how)
    assert done.returncode in (-signal.SIGTRAP, -signal.SIGILL)
    assert done.stdout == "before, with a line\nand without"
    assert said in done.stderr and "Traceback" not in done.stderr


def test_status_input_and_folder_are_the_programs_own(tmp_path):
    assert trap("exit", "42").returncode == 42
    assert trap("exit in a handler").returncode == 5
    done = trap("input", cwd=tmp_path, given="a line\n")
    assert done.stdout.endswith(f"got a line {tmp_path}\n")


# Ctrl-C


@pytest.fixture(scope="module")
def compiled() -> None:
    """Both programs, so that the tests below do not wait for the compiler."""
    run(BEHAVIOUR / "interrupted.swift", "--", "nowhere")
    with started(command("run", BEHAVIOUR / "earlier.swift")) as running:
        running.kill()


def started(words: list[str | Path], **more: str) -> subprocess.Popen[str]:
    running = subprocess.Popen(
        words, env=environment(**more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    return running


def interrupt(words: list[str | Path], **more: str) -> tuple[int, str]:
    """Status and standard error of a program that gets a Ctrl-C when it is ready."""
    return interrupted(lambda: started(words, **more))


def binary(name: str) -> Path:
    found = sorted(cache.folder().glob(f"programs/*/Contents/Linux/{name}"), key=lambda path: path.lstat().st_mtime)
    return found[-1]


@pytest.mark.parametrize("place", ["start", "main", "handler", "execute", "wait"])
@pytest.mark.parametrize("by", ["command", "itself", "in-python"])
def test_ctrl_c_ends_it_as_any_swift_program(compiled, place, by):
    words: list[str | Path] = [*command("run", BEHAVIOUR / "interrupted.swift", "--", place)]
    if by == "itself":
        words = [binary("interrupted"), place]
    elif by == "in-python":
        words = [*hosted("run", "--in-python", BEHAVIOUR / "interrupted.swift", "--", place)]
    status, errors = interrupt(words, MLC_TORCH_PYTHON=sys.executable)
    assert status == -signal.SIGINT
    assert "Traceback" not in errors and "KeyboardInterrupt" not in errors


def test_a_programs_own_handler_stays_in_force(compiled):
    assert interrupt(command("run", BEHAVIOUR / "interrupted.swift", "--", "own"))[0] == 33
    assert interrupt(command("run", BEHAVIOUR / "earlier.swift"))[0] == 34


# As a library inside Python


def test_inside_python(tmp_path):
    done = subprocess.run(
        hosted("run", "--in-python", BEHAVIOUR / "traps.swift", "--", "exit", "9"),
        env=environment(),
        capture_output=True,
        text=True,
        cwd=HERE,
    )
    assert (done.returncode, done.stdout) == (9, "before, with a line\nand without"), done.stderr
    done = subprocess.run(
        hosted("run", "--in-python", BEHAVIOUR / "traps.swift", "--", "refusals"),
        env=environment(),
        capture_output=True,
        text=True,
        cwd=HERE,
    )
    assert done.returncode == 0 and "(and 2 more times)" in done.stderr, done.stderr


# Which Python


HELLO = "import MLCompute\nprint(MLCTensor(shape: [2, 3]).descriptor.shape)"


def test_a_binary_started_by_itself_finds_its_python(tmp_path):
    written(tmp_path, hello=HELLO)
    assert run(tmp_path / "hello.swift").stdout == "[2, 3]\n"
    started_by_itself = binary("hello")

    def alone(**more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([started_by_itself], env=environment(**more), capture_output=True, text=True)

    assert alone(MLC_TORCH_PYTHON=sys.executable).stdout == "[2, 3]\n"
    assert alone(VIRTUAL_ENV=sys.prefix).stdout == "[2, 3]\n"
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder / "python3").chmod(0o755)
    assert alone(PATH=f"{folder}:/usr/bin:/bin", VIRTUAL_ENV="").returncode != 0  # an empty one is no environment
    without = {name: value for name, value in environment().items() if name != "VIRTUAL_ENV"}
    done = subprocess.run(
        [started_by_itself], env=without | {"PATH": f"{folder}:/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert done.stdout == "[2, 3]\n"


def test_a_binary_says_what_it_misses(tmp_path):
    written(tmp_path, hello=HELLO)
    assert run(tmp_path / "hello.swift").stdout == "[2, 3]\n"
    nowhere = environment(MLC_TORCH_PYTHON="/nowhere/python")
    done = subprocess.run([binary("hello")], env=nowhere, capture_output=True, text=True)
    assert done.returncode == 70 and "/nowhere/python did not answer; set MLC_TORCH_PYTHON" in done.stderr
    bare = environment(MLC_TORCH_PYTHON=sys.executable) | {"PYTHONPATH": "", "PYTHONNOUSERSITE": "1"}
    blocked = tmp_path / "block"
    (blocked / "mlc_torch").mkdir(parents=True)
    (blocked / "mlc_torch" / "__init__.py").write_text("raise ImportError('not this one')")
    done = subprocess.run([binary("hello")], env=bare | {"PYTHONPATH": str(blocked)}, capture_output=True, text=True)
    assert done.returncode == 70
    assert "ImportError: not this one" in done.stderr and "cannot import mlc_torch (see above)" in done.stderr


def test_the_commands_python_wins_over_the_surroundings(tmp_path):
    written(tmp_path, hello=HELLO)
    assert run(tmp_path / "hello.swift", MLC_TORCH_PYTHON="/nowhere").stdout == "[2, 3]\n"


def test_this_python_has_a_library():
    assert libpython(), "the tests above need a Python with a shared library"


# Files


def test_what_lies_beside_the_file_is_found(tmp_path):
    written(
        tmp_path,
        main='import MLCompute\nlet url = Bundle.main.url(forResource: "data", withExtension: "txt")!\n'
        "print(try! String(contentsOf: url, encoding: .utf8), triple(2))",
        other="func triple(_ x: Int) -> Int { 3 * x }",
    )
    (tmp_path / "data.txt").write_text("found")
    assert run(tmp_path / "main.swift", tmp_path / "other.swift", cwd=Path("/")).stdout == "found 6\n"


def test_it_is_found_whatever_it_is_called(tmp_path):
    names = [
        "mnist/a.csv",
        "Contents/a.csv",
        "Support Files/a.csv",
        "Resources/a.csv",
        "mnist.so",
        "main.swift",
        "program.o",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"this is {name}")
    looked = "".join(f'show(Bundle.main.path(forResource: "{name}", ofType: nil))\n' for name in names)
    written(
        tmp_path,
        mnist="import MLCompute\nfunc show(_ path: String?) {\n"
        f"    print(try! String(contentsOfFile: path!, encoding: .utf8))\n}}\n{looked}"
        'let folder = Bundle.main.url(forResource: "mnist", withExtension: nil)!\n'
        "print(try! FileManager.default.contentsOfDirectory(atPath: folder.path))\n"
        'show(Bundle.main.bundlePath + "/mnist.so")\n'
        'show(Bundle.main.executableURL!.deletingLastPathComponent().path + "/program.o")\n',
    )
    done = run(tmp_path / "mnist.swift", cwd=Path("/"))
    said = [*(f"this is {name}" for name in names), '["a.csv"]', "this is mnist.so", "this is program.o"]
    assert done.stdout.splitlines() == said, done.stderr


def test_a_type_marked_main(tmp_path):
    written(
        tmp_path,
        tool="import MLCompute\n@main struct Tool { static func main() async { print(CommandLine.arguments.dropFirst()) } }",
    )
    assert run(tmp_path / "tool.swift", "--", "-x", "y z").stdout == '["-x", "y z"]\n'


def test_a_playground(tmp_path):
    page = tmp_path / "Play.playground"
    folder = page / "Pages" / "One.xcplaygroundpage"
    folder.mkdir(parents=True)
    (folder / "Contents.swift").write_text(
        "import PlaygroundSupport\nimport MLCompute\nPlaygroundPage.current.needsIndefiniteExecution = true\n"
        "DispatchQueue.main.asyncAfter(deadline: .now() + 0.2) { print(shared(), MLCTensor(shape: [2]).descriptor.shape)\n"
        '    PlaygroundPage.current.finishExecution() }\nprint("last line")\n'
    )
    (page / "Sources").mkdir()
    (page / "Sources" / "Shared.swift").write_text('public func shared() -> String { "shared" }\n')
    done = run(page)
    assert (done.returncode, done.stdout) == (0, "last line\nshared [2]\n"), done.stderr
    (folder / "Contents.swift").write_text('import MLCompute\nlet x: Int = "no"\n')
    broken = swift("run", page)
    assert broken.returncode == 1 and f"{folder / 'Contents.swift'}:2:" in broken.stderr


@pytest.mark.parametrize("neighbour", ["UIKit", "SwiftUI", "Cocoa", "CoreGraphics"])
def test_neighbours_on_request(tmp_path, neighbour):
    text = f"import {neighbour}\nimport MLCompute\nprint(MLCTensor(shape: [1]).descriptor.shape, CGFloat(1))"
    if neighbour == "UIKit":
        text += "\nclass C: UIViewController { override func viewDidLoad() { super.viewDidLoad() } }\nC().viewDidLoad()"
    written(tmp_path, a=text)
    without = swift("run", tmp_path / "a.swift")
    assert without.returncode == 1 and f"--with {neighbour}" in without.stderr.splitlines()[-1]
    assert run("--with", neighbour, tmp_path / "a.swift").stdout == "[1] 1.0\n"


def test_metal_alone(tmp_path):
    written(
        tmp_path,
        a="import Metal\nprint(MTLCopyAllDevices().count, MTLCreateSystemDefaultDevice()?.name.isEmpty ?? true)",
    )
    assert run(tmp_path / "a.swift", MLC_TORCH_GPU="cpu").stdout == "1 false\n"


@pytest.mark.parametrize("without", ["Combine", "Metal", "Combine,Metal,PlaygroundSupport"])
def test_without_a_neighbour_its_types_stay(tmp_path, without):
    """``canImport`` is false, and ML Compute's own members can still be written down."""
    lines = [
        "import MLCompute",
        "final class M: ObservableObject { @Published var x = 1 }",
        "print(M().x, MTLCopyAllDevices().count)",
    ]
    lines += [f'#if canImport({name})\nprint("{name} is there")\n#endif' for name in without.split(",")]
    written(tmp_path, a="\n".join(lines))
    assert run("--without", without, tmp_path / "a.swift", MLC_TORCH_GPU="cpu").stdout == "1 1\n"


def test_several_commands_at_once(tmp_path):
    written(tmp_path, hello=HELLO)
    home = {"MLC_TORCH_CACHE": str(tmp_path / "cache")}
    (tmp_path / "cache" / "swift").mkdir(parents=True)
    (tmp_path / "cache" / "swift" / "modules").symlink_to(cache.folder() / "modules")  # only the program is built anew
    several = [
        subprocess.Popen(
            command("run", tmp_path / "hello.swift"),
            env=environment(**home),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for running in several:
        output, errors = running.communicate()
        assert (running.returncode, output) == (0, "[2, 3]\n"), errors
    assert len(list((tmp_path / "cache" / "swift" / "programs").iterdir())) == 1
