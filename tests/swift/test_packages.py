"""SwiftPM packages whose Package.swift stays as it is, and the package that others depend on."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlc_torch.swift.toolchain import toolchain
from tests.swift.toolbox import command, environment, interrupted, left_of, session, swift, written

pytestmark = pytest.mark.swift

MANIFEST = """// swift-tools-version: 5.9
import PackageDescription
let package = Package(
    name: "Lines",
    dependencies: [.package(path: "Notifier")],
    targets: [
        .target(name: "Lines", dependencies: ["Notifier"]),
        .executableTarget(name: "tool", dependencies: ["Lines"]),
        .testTarget(name: "LinesTests", dependencies: ["Lines"]),
    ]
)
"""
LINES = """import MLCompute
import Notifier
public final class Line: ObservableObject {
    @Published public private(set) var loss: Float = .infinity
    public let notifier = Notifier()
    public init() {}
    public func double(_ values: [Float]) -> [Float] {
        let x = MLCTensor(shape: [values.count]), graph = MLCGraph()
        let y = graph.node(with: MLCArithmeticLayer(operation: .add), sources: [x, x])!
        let inference = MLCInferenceGraph(graphObjects: [graph])
        inference.addInputs(["x": x])
        inference.compile(device: .cpu())
        values.withUnsafeBytes {
            let data = MLCTensorData(immutableBytesNoCopy: $0.baseAddress!, length: 4 * values.count)
            _ = inference.execute(inputsData: ["x": data], batchSize: 0, options: [.synchronous])
        }
        loss = 0
        return y.data!.withUnsafeBytes { Array($0.bindMemory(to: Float.self)) }
    }
}
"""
TESTS = """import XCTest
@testable import Lines
final class LinesTests: XCTestCase {
    func testDoubles() { XCTAssertEqual(Line().double([1, 2, 3]), [2, 4, 6]) }
    func testLoss() { let line = Line(); _ = line.double([1]); XCTAssertEqual(line.loss, 0) }
    func testFails() { XCTAssertEqual(Line().double([1]), [FAILING]) }
}
"""
NEWER = """import Testing
@testable import Lines
@Suite struct Newer {
    @Test func doublesToo() { #expect(Line().double([4]) == [8]) }
    @Test func failsToo() { #expect(Line().double([1]) == [NEWFAILING]) }
}
"""
DEPENDENCY = """// swift-tools-version: 5.9
import PackageDescription
let package = Package(
    name: "Notifier",
    products: [.library(name: "Notifier", targets: ["Notifier"])],
    targets: [.target(name: "Notifier")]
)
"""
NOTIFIER = """#if canImport(Combine)
import Combine
public final class Notifier {
    let subject = PassthroughSubject<Int, Never>()
    public init() {}
}
#elseif canImport(Metal)
import Metal
public final class Notifier {
    let queue: (any MTLCommandQueue)? = MTLCreateSystemDefaultDevice()?.makeCommandQueue()
    public init() {}
}
#else
public final class Notifier { public init() {} }
#endif
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("packages") / "Lines"
    for name, text in {
        "Package.swift": MANIFEST,
        "Sources/Lines/Lines.swift": LINES,
        "Sources/tool/main.swift": "import Lines\nprint(Line().double([21]))\n",
        "Tests/LinesTests/LinesTests.swift": TESTS.replace("NEWFAILING", "2").replace("FAILING", "2"),
        "Notifier/Package.swift": DEPENDENCY,
        "Notifier/Sources/Notifier/Notifier.swift": NOTIFIER,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


WITHOUT = ("--without", "Combine,Metal")


def run_tests(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return swift("test", folder, *WITHOUT, *words, cwd=folder)


def test_a_dependency_that_uses_more_of_a_neighbour_is_helped(package):
    done = swift("build", package, cwd=package)
    assert done.returncode == 1
    assert "--without Combine, which makes canImport(Combine) false in every target" in done.stderr.splitlines()[-1]
    done = swift("build", package, "--without", "Combine", cwd=package)
    assert done.returncode == 1
    assert "--without Metal, which makes" in done.stderr.splitlines()[-1]


def test_a_package_is_built_and_its_program_runs_by_itself(package):
    done = swift("build", package, *WITHOUT, cwd=package)
    assert done.returncode == 0, done.stderr
    assert not done.stdout
    program = package / ".build" / "debug" / "tool"
    alone = subprocess.run([program], env=environment(MLC_TORCH_PYTHON=sys.executable), capture_output=True, text=True)
    assert alone.stdout == "[42.0]\n", alone.stderr
    assert (package / "Package.swift").read_text() == MANIFEST


def test_xctests(package):
    done = run_tests(package)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Executed 3 tests, with 0 failures" in done.stdout
    assert "Test run" not in done.stdout + done.stderr  # Swift Testing has nothing to run, and nothing to say
    done = run_tests(package, "--filter", "Loss$")
    assert done.returncode == 0 and "Executed 1 test, with 0 failures" in done.stdout
    done = run_tests(package, "--filter", "NoSuchTest")
    assert done.returncode == 1 and "no test of Lines fits NoSuchTest" in done.stderr


def test_a_failing_xctest_and_the_release_configuration(package):
    file = package / "Tests" / "LinesTests" / "LinesTests.swift"
    file.write_text(TESTS.replace("FAILING", "3"))
    done = run_tests(package, "-c", "release", "--", "-Xswiftc", "-enable-testing")
    assert done.returncode == 1
    assert "Executed 3 tests, with 1 failure" in done.stdout
    assert (package / ".build" / "release" / "LinesPackageTests.xctest").exists()
    file.write_text(TESTS.replace("FAILING", "2"))


def test_swift_testing(package):
    file = package / "Tests" / "LinesTests" / "Newer.swift"
    file.write_text(NEWER.replace("NEWFAILING", "2"))
    done = run_tests(package)
    assert done.returncode == 0, done.stdout + done.stderr
    both = done.stdout + done.stderr
    assert "Executed 3 tests, with 0 failures" in both and "Test run with 2 tests passed" in both
    done = run_tests(package, "--filter", "doublesToo")
    assert done.returncode == 0 and "Test run with 1 test passed" in done.stdout + done.stderr
    file.write_text(f"internal {NEWER}".replace("NEWFAILING", "3"))  # an import has many spellings
    done = run_tests(package)
    assert done.returncode == 1 and "failsToo" in done.stdout + done.stderr
    file.unlink()


# Ctrl-C


ENDLESS = """// swift-tools-version: 5.9
import PackageDescription
let package = Package(name: "Endless", targets: [
    .target(name: "Long"), .testTarget(name: "EndlessTests", dependencies: ["Long"]),
])
"""
LONG = "public func f{0}(_ x: [Int: [String: Double]]) -> [Double] {{ x.values.flatMap {{ $0.map {{ $1 + {0} }} }}.sorted() }}\n"
FOREVER = """import MLCompute
import XCTest
final class EndlessTests: XCTestCase {
    func testForever() { while true { _ = MLCTensor(shape: [1]).descriptor.shape } }
}
"""


@pytest.fixture(scope="module")
def endless(tmp_path_factory) -> Path:
    """It compiles for some seconds, and its test does not end."""
    long = "".join(LONG.format(i) for i in range(300))
    folder = tmp_path_factory.mktemp("endless")
    return written(folder, Package=ENDLESS, Sources__Long__Long=long, Tests__EndlessTests__EndlessTests=FOREVER)


@pytest.mark.parametrize("group", [False, True], ids=["alone", "with its group"])
@pytest.mark.parametrize("while_", ["-module-name Long ", "EndlessPackageTests.xctest"], ids=["compiling", "testing"])
def test_ctrl_c_ends_the_tests_and_all_that_was_started(endless, while_, group):
    leaders = []

    def start() -> subprocess.Popen[str]:
        running = subprocess.Popen(
            command("test", endless),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        leaders.append(running.pid)
        while running.poll() is None:
            if any(while_ in line and "--list-tests" not in line for line in session(running.pid)):
                break
            time.sleep(0.02)
        return running

    status, errors = interrupted(start, group=group)
    assert status == -signal.SIGINT and "Traceback" not in errors and "KeyboardInterrupt" not in errors
    assert [line for leader in leaders for line in left_of(leader)] == []


def test_a_package_without_tests_is_an_error(tmp_path):
    (tmp_path / "Sources" / "a").mkdir(parents=True)
    (tmp_path / "Sources" / "a" / "main.swift").write_text("print(1)")
    (tmp_path / "Package.swift").write_text(
        "// swift-tools-version: 5.9\nimport PackageDescription\n"
        'let package = Package(name: "Bare", targets: [.executableTarget(name: "a")])\n'
    )
    done = swift("test", tmp_path, cwd=tmp_path)
    assert done.returncode == 1 and done.stderr == "mlc-torch: Bare has no tests\n"
    done = swift("build", tmp_path / "Sources", cwd=tmp_path)
    assert done.returncode == 2 and "has no Package.swift" in done.stderr


def test_a_package_to_depend_on(tmp_path):
    done = swift("package", tmp_path / "mlc", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    again = swift("package", tmp_path / "mlc", cwd=tmp_path)
    assert again.returncode == 0
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("")
    refused = swift("package", tmp_path / "other", cwd=tmp_path)
    assert refused.returncode == 2 and "not written by this command" in refused.stderr
    user = tmp_path / "user"
    (user / "Sources" / "user").mkdir(parents=True)
    (user / "Sources" / "user" / "main.swift").write_text(
        'import MLCompute\nimport Metal\nprint("printed", terminator: "")\n'
        'print(MLCTensor(shape: [7]).descriptor.shape, MTLCopyAllDevices().count)\nfatalError("on purpose")\n'
    )
    (user / "Package.swift").write_text(
        '// swift-tools-version: 5.9\nimport PackageDescription\nlet package = Package(name: "user", '
        'dependencies: [.package(path: "../mlc")], targets: [.executableTarget(name: "user", '
        'dependencies: [.product(name: "MLCompute", package: "mlc")])])\n'
    )
    subprocess.run([toolchain().swift, "build"], cwd=user, check=True)
    done = subprocess.run(
        [user / ".build" / "debug" / "user"],
        env=environment(MLC_TORCH_PYTHON=sys.executable, MLC_TORCH_GPU="cpu"),
        capture_output=True,
        text=True,
    )
    assert done.stdout == "printed[7] 1\n" and "on purpose" in done.stderr, done.stderr
