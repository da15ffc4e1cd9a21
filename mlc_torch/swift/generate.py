"""The Swift source of the module ``MLCompute``, written from the list of everything ML Compute has."""

from __future__ import annotations

import keyword
from importlib import resources
from typing import Any

from mlc_torch.coverage.api import api
from mlc_torch.swift.conversions import from_python, to_python
from mlc_torch.swift.members import Member, Parameter, members

_RESERVED = {"any", "default", "in", "is", "as", "throw", "self", "internal", "operator", "repeat"}
"""Swift's keywords that a case or a parameter may be called; backticks make names of them."""

WITH_PAYLOAD = ("MLCPaddingPolicy", "MLCPoolingType")
"""Written by hand in ``sources/MLCompute/Values.swift``: the list does not say the types of what their cases carry."""

_COPYING = ("MLCDevice", "MLCOptimizer", "MLCTensor", "MLCTensorOptimizerDeviceData")
"""Beside the descriptors these conform to NSCopying, as Apple's pages of the classes say."""


class _Tables:
    """What the generated code reaches by index: Python's interned names, tuples of labels, classes, enumerations."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.labels: dict[tuple[str, ...], int] = {}
        self.classes = {name: i for i, name in enumerate(api()["classes"])}
        self.enums: dict[str, int] = {}
        place = 0
        for name in [*api()["enums"], *api()["option_sets"]]:
            if name not in WITH_PAYLOAD:
                self.enums[name] = place
                place += _raw_values(name)[-1] + 1

    def name(self, name: str) -> str:
        return f"rt.names[{self.names.setdefault(name, len(self.names))}]"

    def label_tuple(self, labels: list[str]) -> str:
        if not labels:
            return "nil"
        # Python reserves a few of Swift's labels; mlc_torch spells them with an underscore.
        spelled = tuple(f"{label}_" if keyword.iskeyword(label) else label for label in labels)
        return f"rt.labels[{self.labels.setdefault(spelled, len(self.labels))}]"

    def swift(self) -> list[str]:
        def strings(values: Any) -> str:
            return "[" + ", ".join(f'"{value}"' for value in values) + "]"

        classes = ", ".join(f'("{name}", {name}.self)' for name in self.classes)
        enums = ", ".join(f'("{name}", {_raw_values(name)})' for name in self.enums)
        return [
            f"let classTable: [(String, _MLCObject.Type)] = [{classes}]",
            f"let nameTable: [String] = {strings(self.names)}",
            f"let labelTable: [[String]] = [{', '.join(strings(labels) for labels in self.labels)}]",
            f"let enumTable: [(String, [Int])] = [{enums}]",
        ]


def _raw_values(name: str) -> list[int]:
    """The numbers of an enumeration's cases; of options, of each set of them."""
    if name in api()["option_sets"]:
        return list(range(2 * max(option["raw"] for option in api()["option_sets"][name].values())))
    return sorted(case["raw"] for case in api()["enums"][name].values() if case["swift"])


def generate() -> str:
    """The generated file of the module; the others lie beside this one, in ``sources/MLCompute``."""
    tables = _Tables()
    lines = ["// Written by mlc_torch.swift.generate. Do not edit.", "", "import Foundation", ""]
    for name, type_ in api()["typealiases"].items():
        lines.append(f"public typealias {name} = {type_}")
    for name, cases in api()["enums"].items():
        if name not in WITH_PAYLOAD:
            lines += _enum(name, cases, tables)
    for name in api()["functions"]:
        lines += [
            "",
            f"public func {name}(_ value: {name.removesuffix('DebugDescription')}) -> String {{ value.debugDescription }}",
        ]
    for name, options in api()["option_sets"].items():
        lines += _option_set(name, options, tables)
    for name in api()["classes"]:
        lines += _class(name, tables)
    lines += ["", *tables.swift(), "", f"let libpythonScript = {_literal(_libpython_script())}"]
    return "\n".join(lines) + "\n"


def _libpython_script() -> str:
    return resources.files(__package__).joinpath("libpython.py").read_text("utf-8")


def _literal(text: str) -> str:
    return f'##"""\n{text}\n"""##'


def _name(name: str) -> str:
    return f"`{name}`" if name in _RESERVED else name


def _enum(name: str, cases: dict[str, Any], tables: _Tables) -> list[str]:
    raw = "UInt64" if name == "MLCLSTMResultMode" else "Int32"
    described = f"{name}DebugDescription" in api()["functions"]
    return [
        "",
        f"public enum {name}: {raw}, Sendable{', CustomDebugStringConvertible' if described else ''} {{",
        *(f"    case {_name(case['swift'])} = {case['raw']}" for case in cases.values() if case["swift"]),
        *(["    public var debugDescription: String { described(self) }"] if described else []),
        "}",
        f"extension {name}: Bridged {{",
        f"    func toPython() -> PyPtr {{ let p = rt.enums[{tables.enums[name]} + Int(rawValue)]!; py.incref(p); return p }}",
        f"    static func fromPython(_ p: PyPtr) -> {name} {{",
        f"        guard let value = {name}(rawValue: {raw}(Int.fromPython(p))) else {{",
        f'            end("\\(text(py.repr(p))) is no {name}")',
        "        }",
        "        return value",
        "    }",
        "}",
    ]


def _option_set(name: str, options: dict[str, Any], tables: _Tables) -> list[str]:
    return [
        "",
        f"public struct {name}: OptionSet, Sendable {{",
        "    public let rawValue: UInt64",
        "    @inlinable public init(rawValue: UInt64) { self.rawValue = rawValue }",
        *(
            f"    @inlinable public static var {_name(o['swift'])}: {name} {{ {name}(rawValue: {o['raw']}) }}"
            for o in options.values()
            if o["swift"]
        ),
        "}",
        f"extension {name}: Bridged {{",
        "    func toPython() -> PyPtr {",
        # Bits that no option has mean nothing; a program may well say ~0x4 or .max.
        f"        let p = rt.enums[{tables.enums[name]} + Int(rawValue & {len(_raw_values(name)) - 1})]!",
        "        py.incref(p)",
        "        return p",
        "    }",
        f"    static func fromPython(_ p: PyPtr) -> {name} {{ {name}(rawValue: UInt64(Int.fromPython(p))) }}",
        "}",
    ]


def _class(name: str, tables: _Tables) -> list[str]:
    superclass = api()["classes"][name]["superclass"]
    index = tables.classes[name]
    lines = [
        "",
        f"open class {name}: {superclass or '_MLCObject'} {{",
        f"    override class var pythonClass: PyPtr {{ rt.classes[{index}] }}",
        f"    override class func wrapping(_ p: PyPtr) -> _MLCObject {{ {name}(_object: p) }}",
    ]
    for member in members(name):
        lines += [f"    {line}" for line in _member(member, tables)]
    lines.append("}")
    if superclass is None and (name.endswith("Descriptor") or name in _COPYING):
        lines.append(
            f"extension {name}: NSCopying {{ public func copy(with zone: NSZone? = nil) -> Any {{ copied() }} }}"
        )
    return lines


_LOCK = "let gil = GIL(); defer { gil.end() }"


def _member(member: Member, tables: _Tables) -> list[str]:
    if member.kind == "property":
        return _property(member, tables)
    if member.kind == "init":
        return _initializer(member, tables)
    return _async_method(member) if member.is_async else _method(member, tables)


def _property(member: Member, tables: _Tables) -> list[str]:
    of = f"rt.classes[{tables.classes[member.owner]}]" if member.static else "object"
    value = from_python(member.type, "p")
    if member.type.endswith("Descriptor"):
        value = f"holding({value})"
    read = [
        _LOCK,
        f'let p = getAttribute("{member.swift_name}", {of}, {tables.name(member.name)}); defer {{ py.decref(p) }}',
        f"return {value}",
    ]
    head = f"open {'class ' if member.static else ''}var {_name(member.name)}: {member.type} {{"
    if not member.settable:
        return [head, *(f"    {line}" for line in read), "}"]
    write = (
        f'setAttribute("{member.swift_name}", {of}, {tables.name(member.name)}, {to_python(member.type, "newValue")})'
    )
    return [
        head,
        "    get {",
        *(f"        {line}" for line in read),
        "    }",
        "    set {",
        f"        {_LOCK}",
        f"        {write}",
        "    }",
        "}",
    ]


def _initializer(member: Member, tables: _Tables) -> list[str]:
    if not member.parameters:  # NSObject has it, and a program's subclass may call it through super
        return [
            "public override init() { super.init() }",
            "public override init(_object: UnsafeMutableRawPointer) { super.init(_object: _object) }",
        ]
    who, cls = f'"{member.swift_name}"', f"rt.classes[{tables.classes[member.owner]}]"
    arguments, positional, labels = _arguments(member.parameters, [], tables)
    return [
        f"public convenience init{'?' if member.failable else ''}({_parameters(member)}) {{",
        f"    {_LOCK}",
        f"    let p = callClass({who}, {cls}, {arguments}, {positional}, {labels})",
        f"    if p == py.none {{ {'return nil' if member.failable else f'refused({who})'} }}",
        "    self.init(_object: p)",
        "}",
    ]


def _method(member: Member, tables: _Tables) -> list[str]:
    receiver = f"rt.classes[{tables.classes[member.owner]}]" if member.static else "object"
    arguments, positional, labels = _arguments(member.parameters, [receiver], tables)
    void = member.type == "Void"
    head = f"open {'class ' if member.static else ''}func {_name(member.name)}({_parameters(member)})"
    return [
        f"{head} {{" if void else f"@discardableResult {head} -> {member.type} {{",
        f"    {_LOCK}",
        f'    let p = callMethod("{member.swift_name}", {tables.name(member.name)}, {arguments}, {positional}, {labels})',
        *(
            ["    py.decref(p)"]
            if void
            else ["    defer { py.decref(p) }", f"    return {from_python(member.type, 'p')}"]
        ),
        "}",
    ]


def _async_method(member: Member) -> list[str]:
    """Through the form with a handler; the time is always measured, as the Async forms in Python do."""
    passed = []
    for p in member.parameters:
        value = "options.union([.synchronous, .profiling])" if p.type == "MLCExecutionOptions" else _name(p.name)
        passed.append(value if p.label == "_" else f"{p.label}: {value}")
    call = f"self.{member.name}({', '.join(passed)}, completionHandler: $0)"
    only_time = ".executionTime" if member.type == "TimeInterval" else ""
    return [
        f"@discardableResult open func {_name(member.name)}({_parameters(member)}) async throws -> {member.type} {{",
        f"    try await awaited {{ {call} }}{only_time}",
        "}",
    ]


def _parameters(member: Member) -> str:
    return ", ".join(_parameter(p) for p in member.parameters)


def _parameter(p: Parameter) -> str:
    head = _name(p.name) if p.label == p.name else f"{p.label} {_name(p.name)}"
    return f"{head}: {p.type}" + (f" = {p.default}" if p.default is not None else "")


def _arguments(parameters: tuple[Parameter, ...], first: list[str], tables: _Tables) -> tuple[str, int, str]:
    """The values of a call, how many of them stand by position, and the tuple of the labels of the rest."""
    plain = [p for p in parameters if p.label == "_"]
    labelled = [p for p in parameters if p.label != "_"]
    values = [*first, *(to_python(p.type, _name(p.name)) for p in [*plain, *labelled])]
    names = [p.label for p in labelled]
    labels = tables.label_tuple(names)
    if labelled and labelled[-1].type == "MLCGraphCompletionHandler?":  # Python has the same default, nil, for these
        labels = f"{_name(labelled[-1].name)} == nil ? {tables.label_tuple(names[:-1])} : {labels}"
    return f"({', '.join(values)})", len(first) + len(plain), labels
