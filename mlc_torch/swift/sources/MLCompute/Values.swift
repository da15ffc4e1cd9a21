// The two enumerations whose cases carry values. Python knows them by Objective-C's raw value and the payload.

import Foundation

public enum MLCPaddingPolicy: Hashable, Sendable, CustomDebugStringConvertible {
    case same
    case valid
    case sized(y: Int, x: Int)
    public var debugDescription: String { described(self) }
}

extension MLCPaddingPolicy: Bridged {
    func toPython() -> PyPtr {
        switch self {
        case .same: return callInside("padding_policy", 0.toPython())
        case .valid: return callInside("padding_policy", 1.toPython())
        case .sized(let y, let x): return callInside("padding_policy", (2.toPython(), pair(y, x)))
        }
    }
    static func fromPython(_ p: PyPtr) -> MLCPaddingPolicy {
        switch integer(p, "rawValue") {
        case 0: return .same
        case 1: return .valid
        default:
            guard let sizes = py.getAttributeNamed(p, "payload") else { failed("MLCPaddingPolicy.sized") }
            defer { py.decref(sizes) }
            return .sized(y: item(sizes, 0), x: item(sizes, 1))
        }
    }
}

public enum MLCPoolingType: Hashable, Sendable, CustomDebugStringConvertible {
    case max
    case average(countIncludesPadding: Bool = false)
    case l2Norm
    public var debugDescription: String { described(self) }
}

extension MLCPoolingType: Bridged {
    func toPython() -> PyPtr {
        switch self {
        case .max: return callInside("pooling_type", 1.toPython())
        case .average(let counts): return callInside("pooling_type", (2.toPython(), counts.toPython()))
        case .l2Norm: return callInside("pooling_type", 3.toPython())
        }
    }
    static func fromPython(_ p: PyPtr) -> MLCPoolingType {
        switch integer(p, "rawValue") {
        case 1: return .max
        case 3: return .l2Norm
        default: return .average(countIncludesPadding: integer(p, "countIncludesPadding") != 0)
        }
    }
}

private func integer(_ p: PyPtr, _ name: String) -> Int {
    guard let value = py.getAttributeNamed(p, name) else { failed("an attribute") }
    defer { py.decref(value) }
    return Int.fromPython(value)
}

/// `debugDescription`, which Python has from the same list of strings.
func described<Case: Bridged>(_ value: Case) -> String {
    let gil = GIL(); defer { gil.end() }
    let p = value.toPython(); defer { py.decref(p) }
    return text(py.getAttributeNamed(p, "debugDescription"))
}
