"""What to say after a compiler's error that names a module or a type of Apple's."""

from __future__ import annotations

import re

from mlc_torch.swift.neighbours import ON_REQUEST, USUAL

_MODULES = {
    "Accelerate": "write its vDSP, BLAS and vImage calls as plain Swift loops",
    "AppKit": "there are no windows on Linux; leave the part that shows things out with #if canImport(AppKit)",
    "CoreData": "keep the data in files, with Foundation's Codable",
    "CoreImage": "read images with a package, or leave the part out with #if canImport(CoreImage)",
    "CoreML": "only ML Compute is here; leave the part out with #if canImport(CoreML)",
    "CreateML": "only ML Compute is here; leave the part out with #if canImport(CreateML)",
    "CryptoKit": "the package swift-crypto has the same names: import Crypto",
    "Darwin": "import Foundation or Glibc instead: #if canImport(Darwin) … #else import Glibc",
    "MetalKit": "only the list of GPUs is here, in Metal",
    "MetalPerformanceShaders": "only ML Compute is here; use MLCompute's own layers",
    "MetalPerformanceShadersGraph": "only ML Compute is here; use MLCompute's own layers",
    "ObjectiveC": "import MLCompute has autoreleasepool; the rest of the Objective-C runtime is not on Linux",
    "OSLog": "print, or the package swift-log",
    "TabularData": "read CSV files with Foundation's String.split",
    "Vision": "only ML Compute is here; leave the part out with #if canImport(Vision)",
    "os": "print, or the package swift-log",
    "simd": "Swift's own SIMD2, SIMD3, SIMD4 need no import",
}
_OF = {
    "AV": "AVFoundation",
    "CG": "CoreGraphics",
    "CI": "CoreImage",
    "CV": "CoreVideo",
    "MPS": "MetalPerformanceShaders",
    "ML": "CoreML",
    "NS": "AppKit",
    "SK": "SpriteKit",
    "UI": "UIKit",
    "VN": "Vision",
}
"""Which module of Apple's has types that begin so; Foundation's NS and ML Compute's MLC are here."""
_TYPE = re.compile(rf"({'|'.join(_OF)})(?!C)[A-Z]\w+")
_COMBINE = re.compile(
    "AnyCancellable|AnyPublisher|Cancellable|CurrentValueSubject|Future|Just|PassthroughSubject|"
    "Publishers?|Scheduler|Subject|Subscribers?"
)
_SWIFTUI = {
    "View",
    "App",
    "Scene",
    "State",
    "StateObject",
    "ObservedObject",
    "Binding",
    "EnvironmentObject",
    "WindowGroup",
    "PreviewProvider",
}
_FUNCTIONS = {
    r"vDSP\w*|vForce|vImage\w*|cblas_\w+|vv(exp|log|pow|sqrt|sin|cos|tanh)f?": f"Accelerate's; {_MODULES['Accelerate']}",
    r"os_(log|signpost)|OSLog": f"of Apple's os; {_MODULES['os']}",
    r"os_unfair_lock\w*": "of Apple's os; Foundation's NSLock is here",
    r"mach_(absolute_time|timebase_info\w*)": "Darwin's; DispatchTime.now().uptimeNanoseconds gives a time in nanoseconds",
    r"arc4random(_uniform)?": "Darwin's; Swift's own Int.random(in: 0..<n) needs no import",
    r"objc_\w+": "of the Objective-C runtime, which is not on Linux; keep what belongs to an object in a "
    "property of a subclass, or in a dictionary by ObjectIdentifier",
}
"""Apple's C functions: whose they are, and what to write instead."""


def hints(words: str) -> list[str]:
    """One line for each thing of Apple's that the compiler did not find."""
    found: dict[str, None] = {}
    for module in re.findall(r"no such module '(\w+)'", words):
        found[_module(module)] = None
    for name in re.findall(
        r"cannot find (?:type )?'(\w+)' in scope|no type named '(\w+)' in module '(?:Combine|Metal)'", words
    ):
        if hint := _type(name[0] or name[1]):
            found[hint] = None
    if re.search(
        r"error: (Objective-C interoperability is disabled|'#selector' can only be used with the Objective-C)", words
    ):
        found[
            "@objc and #selector need the Objective-C runtime, which is not on Linux; pass a closure, or leave the part out "
            "with #if canImport(ObjectiveC)"
        ] = None
    if re.search(r"value of type '[^']*MTLDevice[^']*' has no member", words):
        found[_bare("Metal")] = None
    return list(found)


def _module(name: str) -> str:
    if name in ON_REQUEST:
        return f"{name} is Apple's and not on Linux; --with {name} gives a bare one: {ON_REQUEST[name]}"
    if name in USUAL:
        return f"{name} was left out by --without {name}"
    way = _MODULES.get(name)
    if way:
        return f"{name} is Apple's and not on Linux; {way}"
    return (
        f"{name} is no module that is here; if it is Apple's, leave its part out with #if canImport({name}); "
        "if it is a package's, use `mlc-torch swift build`"
    )


def _type(name: str) -> str | None:
    if _COMBINE.fullmatch(name):
        return _bare("Combine")
    if name in _SWIFTUI:
        return f"{name} is SwiftUI's; there are no views on Linux: leave the part out with #if os(macOS), which is false here"
    if name.startswith("MTL"):
        return _bare("Metal")
    for pattern, way in _FUNCTIONS.items():
        if re.fullmatch(pattern, name):
            return f"{name} is {way}"
    if of := _TYPE.fullmatch(name):
        module = _OF[of[1]]
        return f"{name} is of Apple's {module}, which is not on Linux; leave the part out with #if canImport({module})"
    return None


def _bare(module: str) -> str:
    return (
        f"the {module} here is bare: {USUAL[module]}. Code under #if canImport({module}) that uses more of it "
        f"builds with --without {module}, which makes canImport({module}) false in every target and dependency"
    )
