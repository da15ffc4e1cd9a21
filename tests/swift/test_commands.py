"""``mlc-torch swift`` with a stand-in for the compiler: what is found, kept and run, and what is said."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mlc_torch.__main__ import main
from mlc_torch.swift import cache, programs, toolchain
from mlc_torch.swift.hints import hints
from mlc_torch.swift.libpython import libpython
from mlc_torch.swift.modules import SOURCES, module_keys
from mlc_torch.swift.neighbours import ON_REQUEST, USUAL, chosen_neighbours
from mlc_torch.swift.saying import SwiftTrouble
from tests.swift.toolbox import command, environment, interrupted, left_of, session, swift

COMPILER = """#!/bin/sh
# Writes down how it was called, and "compiles" to a script that tells how that was called.
if [ "$1" = -print-target-info ]; then
    echo asked >>"$LOG"
    echo '{"compilerVersion": "Swift version 6.7 (stand-in)", "target": {"triple": "cray"}, "paths": {}}'
    exit
fi
echo "$@" >>"$LOG"
case "$*" in
    "-typecheck -module-name Taken "*) exit 1 ;;
    -typecheck*) exit ;;
esac
while [ $# -gt 0 ]; do
    [ "$1" = -o ] && out=$2
    case $1 in
        *broken.swift) echo "broken.swift:1:8: error: no such module 'UIKit'"; exit 1 ;;
        *endless.swift) exec "$PYTHON" "$APART" ;;
    esac
    shift
done
printf '#!/bin/sh\\necho "ran $@ in $PWD with $MLC_TORCH_PYTHON $(cat)"\\nls "$(dirname "$0")" >&2\\nexit 7\\n' >"$out"
chmod +x "$out"
"""


PACKAGES = """#!/bin/sh
# SwiftPM, as far as `swift test` asks it; "endless" beside Package.swift says what never ends.
case "$*" in
    "package dump-package") echo '{"name": "Bare", "targets": [{"name": "BareTests", "type": "test"}]}' ;;
    *--show-bin-path*) pwd ;;
    *) [ "$(cat endless)" != build ] || exec "$PYTHON" "$APART" ;;
esac
"""
TESTS = """#!/bin/sh
if [ "$1" = --list-tests ]; then echo Bare.Tests/testOne; else exec "$PYTHON" "$APART"; fi
"""
APART = """import os, signal, subprocess
signal.signal(signal.SIGINT, signal.SIG_DFL)
# Never ends, nor does its child in a process group of its own, which is how SwiftPM starts compilers.
with subprocess.Popen(["sleep", "600"], process_group=0):
    open(os.environ["LOG"], "a").write("endless\\n")
"""


BOTH_LIBRARIES = """#!/bin/sh
# A product with one test of XCTest, and Swift Testing's answer as the file "newer" tells.
case "$*" in
    --list-tests) echo Bare.Tests/testOne ;;
    --testing-library*--list-tests) . ./newer ;;
    --testing-library*) echo "ran newer"; exit 1 ;;
    *) echo "ran older" ;;
esac
"""


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A machine with the stand-ins on its PATH and an empty cache."""
    place = tmp_path / "bin"
    place.mkdir()
    for name, text in (("swiftc", COMPILER), ("swift", PACKAGES)):
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    (tmp_path / "apart.py").write_text(APART)
    monkeypatch.setenv("PYTHON", sys.executable)
    monkeypatch.setenv("APART", str(tmp_path / "apart.py"))
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")
    monkeypatch.setenv("MLC_TORCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.delenv("MLC_TORCH_SWIFT", raising=False)
    (tmp_path / "code").mkdir()
    return tmp_path


def log(home: Path) -> list[str]:
    file = home / "log"
    return file.read_text().splitlines() if file.exists() else []


def test_run_compiles_once_and_becomes_the_program(home):
    source = home / "code" / "first-steps.swift"
    source.write_text("print(1)")
    (home / "code" / "data.csv").write_text("1,2")
    for _ in range(2):
        done = swift("run", source, "--", "a", "--b", cwd=home, given="input")
        assert done.returncode == 7
        assert done.stdout == f"ran a --b in {home} with {sys.executable} input\n"
        assert "data.csv" in done.stderr  # beside the program, for Bundle.main
    calls = [line for line in log(home) if str(source) in line]
    assert len(calls) == 1 and "-module-name first_steps" in calls[0]
    assert log(home).count("asked") == 1
    assert sum("-module-name MLCompute" in line for line in log(home)) == 1

    (home / "code" / "data.csv").rename(home / "code" / "other.csv")
    done = swift("run", source, cwd=home)
    assert "other.csv" in done.stderr and "data.csv" not in done.stderr


def test_torch_is_not_imported_to_run_a_program(home):
    source = home / "code" / "a.swift"
    source.write_text("")
    assert swift("run", source, cwd=home).returncode == 7
    script = """import runpy, sys
sys.argv = ["mlc-torch", "swift", "doctor"]
try:
    runpy.run_module("_mlc_torch_command", run_name="__main__")
finally:
    print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, text=True)
    assert done.stdout.endswith("False\n")
    assert "Swift version 6.7 (stand-in), cray" in done.stdout


def started(home: Path, *words: str | Path) -> subprocess.Popen[str]:
    """The command, when it has come to what never ends."""
    before = log(home).count("endless")
    running = subprocess.Popen(
        command(*words),
        cwd=home,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while running.poll() is None and log(home).count("endless") == before:
        time.sleep(0.01)
    return running


@pytest.mark.parametrize("group", [False, True], ids=["alone", "with its group"])
@pytest.mark.parametrize("while_", ["run", "build", "test"])
def test_ctrl_c_ends_the_command_and_all_that_it_started(home, while_, group):
    """While it compiles a program, while SwiftPM builds a package, and while the tests of one run."""
    source = made(home, "code/endless.swift", "Package.swift")[0]
    (home / "endless").write_text(while_)
    (home / "BarePackageTests.xctest").write_text(TESTS)
    (home / "BarePackageTests.xctest").chmod(0o755)
    sessions = []

    def start() -> subprocess.Popen[str]:
        running = started(home, *(["run", source] if while_ == "run" else ["test", home]))
        sessions.append(running.pid)
        assert len(session(running.pid)) >= 3, session(running.pid)
        return running

    status, errors = interrupted(start, group=group)
    assert status == -signal.SIGINT and "Traceback" not in errors
    assert [line for leader in sessions for line in left_of(leader)] == []
    assert list((home / "cache" / "swift").glob("programs/*")) == []


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        ("echo 'Bare.one()'", 1, "ran older\nran newer\n"),
        ("exit 69", 0, "ran older\n"),
        ("""echo usage; echo 'Error: Invalid option "--testing-library"' >&2; exit 1""", 0, "ran older\n"),
        ("echo cannot be loaded; exit 3", 3, "ran older\n"),
    ],
    ids=["has some", "has none", "Swift 5.10", "fails"],
)
def test_the_product_is_asked_for_tests_of_swift_testing(home, answer, status, said):
    made(home, "Package.swift", "endless")
    (home / "newer").write_text(answer)
    (home / "BarePackageTests.xctest").write_text(BOTH_LIBRARIES)
    (home / "BarePackageTests.xctest").chmod(0o755)
    done = swift("test", home, cwd=home)
    assert done.returncode == status and done.stdout == said
    assert ("cannot be loaded" in done.stderr) == (status == 3) and "usage" not in done.stderr


def compiled_anew(home: Path, *words: str, files: list[Path]) -> int:
    before = {path.name for path in (home / "cache" / "swift" / "programs").glob("*")}
    assert swift("run", *files, *words, cwd=home).returncode == 7
    return len({path.name for path in (home / "cache" / "swift" / "programs").glob("*")} - before)


def test_what_changes_a_program_compiles_it_again(home, monkeypatch):
    source = home / "code" / "main.swift"
    source.write_text("1")
    assert compiled_anew(home, files=[source]) == 1
    assert compiled_anew(home, files=[source]) == 0
    source.write_text("2")
    assert compiled_anew(home, files=[source]) == 1
    for words in (
        ["-O"],
        ["--swiftc=-DX"],
        ["--with", "UIKit"],
        ["--without", "Combine,Metal"],
        ["-O", "--swiftc=-DX"],
    ):
        assert compiled_anew(home, *words, files=[source]) == 1
    other = home / "code" / "other.swift"
    other.write_text("")
    assert compiled_anew(home, files=[source, other]) == 1
    compiler = home / "bin" / "swiftc"
    compiler.write_text(COMPILER.replace("6.7", "6.8"))
    assert compiled_anew(home, files=[source]) == 1
    assert log(home).count("asked") == 2


def test_our_version_is_in_every_key(home, monkeypatch):
    tools = toolchain.toolchain()
    before = module_keys(tools, chosen_neighbours())
    monkeypatch.setattr("mlc_torch.swift.modules.version", lambda name: "99")
    after = module_keys(tools, chosen_neighbours())
    assert before.keys() == after.keys() and not set(before.values()) & set(after.values())


def test_a_compiler_error_is_followed_by_one_line_of_ours(home):
    source = home / "code" / "broken.swift"
    source.write_text("import UIKit")
    done = swift("run", source, cwd=home)
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.splitlines()[-2:] == [
        "broken.swift:1:8: error: no such module 'UIKit'",
        "mlc-torch: UIKit is Apple's and not on Linux; --with UIKit gives a bare one: "
        "UIViewController with viewDidLoad(), no windows",
    ]
    assert not list((home / "cache" / "swift" / "programs").glob("*"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("a.swift:1:8: error: no such module 'Accelerate'", "Accelerate is Apple's and not on Linux; write its vDSP"),
        ("error: no such module 'Numerics'", "if it is a package's, use `mlc-torch swift build`"),
        ("error: no such module 'Combine'", "Combine was left out by --without Combine"),
        ("error: cannot find type 'AnyCancellable' in scope", "builds with --without Combine"),
        ("error: cannot find type 'MTLBuffer' in scope", "builds with --without Metal"),
        (
            "error: cannot find 'PassthroughSubject' in scope",
            "the Combine here is bare: ObservableObject and @Published",
        ),
        ("error: cannot find type 'NSImage' in scope", "NSImage is of Apple's AppKit"),
        ("error: cannot find type 'View' in scope", "#if os(macOS), which is false here"),
        ("error: cannot find 'vDSP_sve' in scope", "vDSP_sve is Accelerate's; write its vDSP"),
        ("error: cannot find 'cblas_sgemm' in scope", "cblas_sgemm is Accelerate's; write its vDSP"),
        ("error: cannot find 'os_log' in scope", "os_log is of Apple's os; print, or the package swift-log"),
        ("error: cannot find 'mach_absolute_time' in scope", "Darwin's; DispatchTime.now()"),
        ("error: cannot find 'objc_getAssociatedObject' in scope", "of the Objective-C runtime, which is not on Linux"),
        ("error: Objective-C interoperability is disabled", "@objc and #selector need the Objective-C runtime"),
        (
            "error: '#selector' can only be used with the Objective-C runtime",
            "@objc and #selector need the Objective-C",
        ),
        ("error: value of type 'any MTLDevice' has no member 'makeCommandQueue'", "the Metal here is bare"),
    ],
)
def test_hints(words, said):
    (hint,) = hints(f"{words}\n{words}\n")
    assert said in hint


def test_errors_of_the_programs_own_get_no_hint():
    assert hints("error: cannot find 'class_weights' in scope\nerror: cannot find 'vValues' in scope") == []
    assert hints("error: cannot find 'foo' in scope\nerror: value of type 'Int' has no member 'bar'\n") == []


def test_no_toolchain_is_one_sentence(home, monkeypatch):
    (home / "bin" / "swiftc").unlink()
    source = home / "code" / "a.swift"
    source.write_text("")
    for words in (["run", source], ["build", home], ["test", home]):
        (home / "Package.swift").write_text("")
        done = swift(*words, cwd=home)
        assert done.returncode == 1 and not done.stdout
        assert done.stderr == f"mlc-torch: {toolchain.HOW_TO_GET_ONE}\n"
    done = swift("doctor", cwd=home)
    assert done.returncode == 1 and toolchain.HOW_TO_GET_ONE in done.stdout


NOWHERE = "/proc/nowhere"
"""A folder that nobody can make."""


def test_a_cache_that_cannot_be_written_is_one_sentence(home):
    source, _ = made(home, "code/a.swift", "Package.swift")
    said = (
        f"{NOWHERE} cannot be used: No such file or directory "
        f"(the cache is {NOWHERE}/swift; MLC_TORCH_CACHE names another place)\n"
    )
    for words in (["run", source], ["build", home], ["test", home]):
        done = swift(*words, cwd=home, MLC_TORCH_CACHE=NOWHERE)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", f"mlc-torch: {said}")
    done = swift("doctor", cwd=home, MLC_TORCH_CACHE=NOWHERE)
    assert done.returncode == 1 and not done.stderr
    assert "Swift version 6.7 (stand-in), cray" in done.stdout  # the rest is told all the same
    assert done.stdout.endswith(f"cache       {said}")


def test_a_folder_that_cannot_be_made_is_one_sentence(home):
    done = swift("package", f"{NOWHERE}/package", cwd=home)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"mlc-torch: {NOWHERE} cannot be used: No such file or directory\n"


def test_a_filter_is_checked_before_anything_is_built(home):
    made(home, "Package.swift", "endless")
    done = swift("test", home, "--filter", "One", "--filter", "(", cwd=home)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert done.stderr.startswith("mlc-torch: --filter ( is no regular expression: missing )") and not log(home)


@pytest.mark.parametrize("part", ["bin/swiftc", "bin"])
def test_a_toolchain_may_be_named(home, monkeypatch, part):
    monkeypatch.setenv("MLC_TORCH_SWIFT", str(home / part))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert toolchain.toolchain().swiftc == home / "bin" / "swiftc"
    (home / "bin" / "swift").unlink()
    with pytest.raises(SwiftTrouble, match="has no command swift beside it"):
        _ = toolchain.toolchain().swift


def test_an_old_toolchain_is_named(home):
    for version in ("5.10", "6.0-dev", "snapshot"):
        (home / "bin" / "swiftc").write_text(COMPILER.replace("6.7", version))
        assert version in toolchain.toolchain().version
    (home / "bin" / "swiftc").write_text(COMPILER.replace("6.7", "5.9.2"))
    with pytest.raises(SwiftTrouble, match=r"is Swift version 5\.9\.2 \(stand-in\); Swift 5\.10 or newer is needed"):
        toolchain.toolchain()


def test_a_wrong_toolchain_is_named(home, monkeypatch):
    monkeypatch.setenv("MLC_TORCH_SWIFT", str(home / "code"))
    with pytest.raises(SwiftTrouble, match="is no Swift compiler, nor a folder that holds one"):
        toolchain.toolchain()
    monkeypatch.setenv("MLC_TORCH_SWIFT", "/bin/false")
    with pytest.raises(SwiftTrouble, match="/bin/false does not answer as a Swift compiler does"):
        toolchain.toolchain()


def test_a_toolchain_behind_the_same_name_is_noticed(home):
    """A distribution's update replaces the runtime library; a wrapper script stays as it is."""
    runtime = home / "lib"
    runtime.mkdir()
    text = COMPILER.replace('"paths": {}', f'"paths": {{"runtimeLibraryPaths": ["{runtime}"]}}')
    (home / "bin" / "swiftc").write_text(text)
    (runtime / "libswiftCore.so").write_text("old")
    toolchain.toolchain()
    toolchain.toolchain()
    assert log(home).count("asked") == 1
    (runtime / "libswiftCore.so").write_text("newer")
    toolchain.toolchain()
    assert log(home).count("asked") == 2


# Files


def made(home: Path, *names: str) -> list[str]:
    for name in names:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return [str(home / name) for name in names]


def program(*files: str) -> programs.Program:
    return programs.program(list(files), [], [], False, [], False)


def test_a_page_brings_its_playgrounds_sources_and_resources(home):
    page, shared, own, picture = made(
        home,
        "A.playground/Pages/One.xcplaygroundpage/Contents.swift",
        "A.playground/Sources/Shared.swift",
        "A.playground/Pages/One.xcplaygroundpage/Sources/Own.swift",
        "A.playground/Resources/cat.png",
    )
    for given in (page, str(Path(page).parent), str(home / "A.playground")):
        found = program(given)
        assert [str(path) for path in found.files] == [page, own, shared]
        assert found.resources == Path(picture).parent and found.name == "One"


def test_a_page_reaches_the_compiler_byte_for_byte(home):
    """One in Latin-1 too: the compiler says what it thinks of it, as of any other file."""
    (page,) = made(home, "A.playground/Contents.swift")
    Path(page).write_bytes(b"// caf\xe9\r\nprint(1)\r\n")
    done = swift("run", page, cwd=home)
    assert done.returncode == 7 and "Traceback" not in done.stderr
    (text,) = [path.read_bytes() for path in (home / "cache").rglob("main.swift")]
    assert text == f'#sourceLocation(file: "{page}", line: 1)\n'.encode() + Path(page).read_bytes()


def test_of_several_pages_one_is_chosen(home):
    made(home, *(f"A.playground/Pages/{n}.xcplaygroundpage/Contents.swift" for n in ("One", "Two")))
    with pytest.raises(SwiftTrouble, match=r"several pages; run one of them:\n.*One\.xcplaygroundpage\n.*Two"):
        program(str(home / "A.playground"))


def test_files_that_do_not_make_a_program(home):
    a, b, again, data, _ = made(home, "a.swift", "b.swift", "x/a.swift", "data.csv", "Package.swift")
    for files, why in (
        ([a, b], "one is main.swift"),
        ([a, again], "two files have the same name"),
        ([str(home / "no.swift")], "there is no file"),
        ([a, data], r"data\.csv is no Swift file, .*arguments for the program stand after --"),
        ([a, "5"], r"5 is no Swift file, .*arguments for the program stand after --"),
        ([a, str(home / "x")], r"x is no Swift file, .*arguments for the program stand after --"),
        ([str(home)], "is a package: `mlc-torch swift build"),
        ([str(home / "x")], "no playground and no Swift file"),
    ):
        with pytest.raises(SwiftTrouble, match=why) as trouble:
            program(*files)
        assert trouble.value.status == 2


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("a b.swift", "a_b"),
        ("3d.swift", "Program"),
        ("main.swift", "Program"),
        ("Net.swift", "Net"),
        ("é.swift", "_"),
        ("Metal.swift", "MetalProgram"),
        ("Taken.swift", "TakenProgram"),
    ],
)
def test_any_name_of_a_file_serves(home, file, module):
    (source,) = made(home, file)
    assert swift("run", source, cwd=home).returncode == 7
    (call,) = [line for line in log(home) if source in line]
    assert f"-module-name {module} " in call


def test_a_module_that_a_file_imports_is_not_the_program_itself(home):
    (source,) = made(home, "XCTest.swift")
    Path(source).write_text("@testable import class XCTest.XCTestCase")
    assert swift("run", source, cwd=home).returncode == 7
    assert "-module-name XCTestProgram " in log(home)[-1]


def test_neighbours():
    assert chosen_neighbours() == tuple(USUAL)
    assert chosen_neighbours(["UIKit"], ["Combine"]) == ("Metal", "PlaygroundSupport", "UIKit")
    for given in ((["Vision"], []), ([], ["UIKit"])):
        with pytest.raises(SwiftTrouble, match="there is no such neighbour; there is "):
            chosen_neighbours(*given)
    assert {path.name for path in SOURCES.iterdir()} == {*USUAL, *ON_REQUEST, "MLCompute"}


# The cache


def test_two_at_once_build_once(home):
    built = []

    def build(folder: Path) -> None:
        built.append(folder)
        time.sleep(0.2)
        (folder / "file").write_text("whole")

    threads = [threading.Thread(target=cache.kept, args=("kind", "name", build)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1 and (cache.folder() / "kind" / "name" / "file").read_text() == "whole"


def test_another_cache_may_be_faster(home):
    def build(folder: Path) -> None:
        (folder / "file").write_text("ours")
        (folder.parent / "name").mkdir()
        (folder.parent / "name" / "file").write_text("theirs")

    assert (cache.kept("kind", "name", build) / "file").read_text() == "theirs"
    assert [path.name for path in (cache.folder() / "kind").iterdir()] == ["name"]


def test_what_failed_is_not_kept(home):
    def build(folder: Path) -> None:
        (folder / "half").write_text("")
        raise SwiftTrouble("no")

    with pytest.raises(SwiftTrouble):
        cache.kept("kind", "name", build)
    assert list((cache.folder() / "kind").iterdir()) == []


def test_clear(home):
    cache.kept("kind", "name", lambda folder: (folder / "file").write_text("12345") and None)
    assert swift("doctor", "--clear", cwd=home).stdout.startswith(f"cleared {cache.folder()}")
    assert cache.size() == 0 and not (cache.folder() / "kind").exists()
    assert [path.name for path in cache.folder().rglob("*")] == ["locks", "cache"]


def test_builds_are_alone_while_the_cache_is_cleared_again_and_again(home):
    """Where a lock were taken away under someone who waits for it, two would build the same thing at once."""
    building, most = [], []

    def build(folder: Path) -> None:
        building.append(folder)
        time.sleep(0.002)
        most.append(len(building))
        building.remove(folder)

    def work() -> None:
        for _ in range(30):
            cache.kept("kind", "name", build)
            cache.clear()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) >= 30 and max(most) == 1


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "HOME"])
def test_where_the_cache_is(monkeypatch, tmp_path, variable):
    for name in ("MLC_TORCH_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    assert cache.folder() == tmp_path / (".cache" if variable == "HOME" else "") / "mlc_torch" / "swift"


# Python


def test_libpython_is_this_pythons():
    found = libpython()
    assert not found or f"libpython{sys.version_info[0]}.{sys.version_info[1]}" in found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "a.swift", "--epochs", "5"], "--epochs 5; arguments for the program stand after --"),
        (["test", ".", "--parallel"], "--parallel; arguments for swift build stand after --"),
        (["doctor", "--all"], "--all"),
    ],
)
def test_arguments_for_another_stand_after_dashes(capsys, words, said):
    with pytest.raises(SystemExit) as ended:
        main(["swift", *words])
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"mlc-torch: error: unrecognized arguments: {said}"


def test_a_command_is_needed(capsys):
    with pytest.raises(SystemExit):
        main(["swift"])
    with pytest.raises(SystemExit):
        main(["swift", "--help"])
    text = capsys.readouterr().out
    assert all(word in text for word in ("run", "build", "test", "package", "doctor"))
