// Closures of the program that Python calls: completion handlers and deallocators; and the async forms over them.

import Foundation

/// Takes Python's arguments; nil where there are none.
private typealias Body = (Arguments?) -> Void

private final class Box {
    let call: Body
    init(_ call: @escaping Body) { self.call = call }
}

private let call: FastCall = { capsule, arguments, _ in
    Unmanaged<Box>.fromOpaque(py.capsuleGet(capsule!, nil)!).takeUnretainedValue().call(arguments)
    py.incref(py.none)
    return py.none
}

private let letGo: @convention(c) (PyPtr) -> Void = { capsule in
    Unmanaged<Box>.fromOpaque(py.capsuleGet(capsule, nil)!).release()
}

/// A PyMethodDef, laid out as on every 64-bit machine: name, function, flags, documentation.
private struct MethodDefinition: @unchecked Sendable {
    let at: UnsafeMutableRawPointer
    init() {
        at = .allocate(byteCount: 32, alignment: 8)
        at.storeBytes(of: UnsafeMutableRawPointer(strdup("swift_closure")), as: UnsafeMutableRawPointer?.self)
        at.storeBytes(of: unsafeBitCast(call, to: UnsafeMutableRawPointer.self), toByteOffset: 8, as: UnsafeMutableRawPointer.self)
        at.storeBytes(of: 0x80, toByteOffset: 16, as: Int.self)         // METH_FASTCALL
        at.storeBytes(of: 0, toByteOffset: 24, as: Int.self)
    }
}

private let definition = MethodDefinition()

/// A Python function that owns the closure.
private func function(_ body: @escaping Body) -> PyPtr {
    let capsule = py.capsuleNew(Unmanaged.passRetained(Box(body)).toOpaque(), nil, letGo)
    defer { py.decref(capsule) }
    return py.functionNew(definition.at, capsule, nil)
}

func handler(_ completion: MLCGraphCompletionHandler?) -> PyPtr {
    guard let completion else { py.incref(py.none); return py.none }
    return function { arguments in
        let result = arguments![0]!, refusal = arguments![1]!, time = arguments![2]!
        let tensor = MLCTensor?.fromPython(result)
        let error = refusal == py.none ? nil : problem(text(py.str(refusal)))
        let seconds = Double.fromPython(time)
        outside { completion(tensor, error, seconds) }
    }
}

func releasing(_ body: @escaping (UnsafeMutableRawPointer, Int) -> Void, _ bytes: UnsafeMutableRawPointer, _ length: Int) -> PyPtr {
    function { _ in outside { body(bytes, length) } }
}

private func problem(_ text: String) -> any Error {
    NSError(domain: "MLCompute", code: 1, userInfo: [NSLocalizedDescriptionKey: text])
}

/// An async form: the call with a handler, on a thread that may wait.
func awaited(_ run: @escaping (@escaping MLCGraphCompletionHandler) -> Bool) async throws -> (result: MLCTensor?, executionTime: TimeInterval) {
    nonisolated(unsafe) let run = run
    nonisolated(unsafe) let answer: (result: MLCTensor?, executionTime: TimeInterval) = try await withCheckedThrowingContinuation { continuation in
        DispatchQueue.global().async {
            nonisolated(unsafe) var answer: Result<(result: MLCTensor?, executionTime: TimeInterval), any Error>?
            let accepted = run { tensor, error, seconds in
                answer = error.map { .failure($0) } ?? .success((result: tensor, executionTime: seconds))
            }
            nonisolated(unsafe) let given = answer ?? .failure(problem(accepted ? "no answer came" : "refused; the reason is on standard error"))
            continuation.resume(with: given)
        }
    }
    return answer
}
