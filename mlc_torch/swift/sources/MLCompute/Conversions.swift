// Swift values to Python objects (new references) and back (from borrowed ones). The caller holds Python's lock.

import Foundation

protocol Bridged {
    func toPython() -> PyPtr
    static func fromPython(_ p: PyPtr) -> Self
}

extension Int: Bridged {
    @inline(__always) func toPython() -> PyPtr { py.longFrom(self) }
    @inline(__always) static func fromPython(_ p: PyPtr) -> Int {
        let value = py.longAs(p)
        if value == -1, py.errorOccurred() != nil { failed("Int") }
        return value
    }
}

extension Double: Bridged {
    @inline(__always) func toPython() -> PyPtr { py.floatFrom(self) }
    @inline(__always) static func fromPython(_ p: PyPtr) -> Double {
        let value = py.floatAs(p)
        if value == -1, py.errorOccurred() != nil { failed("Double") }
        return value
    }
}

extension Float: Bridged {
    @inline(__always) func toPython() -> PyPtr { py.floatFrom(Double(self)) }
    @inline(__always) static func fromPython(_ p: PyPtr) -> Float { Float(Double.fromPython(p)) }
}

extension Bool: Bridged {
    @inline(__always) func toPython() -> PyPtr {
        let p = self ? py.yes : py.no
        py.incref(p)
        return p
    }
    @inline(__always) static func fromPython(_ p: PyPtr) -> Bool { p == py.yes || (p != py.no && py.isTrue(p) == 1) }
}

extension String: Bridged {
    func toPython() -> PyPtr {
        var text = self
        return text.withUTF8 { utf8 in utf8.withMemoryRebound(to: CChar.self) { py.unicodeFrom($0.baseAddress, $0.count) } }
    }
    static func fromPython(_ p: PyPtr) -> String {
        var count = 0
        guard let characters = py.unicodeAs(p, &count) else { failed("String") }
        return String(decoding: UnsafeRawBufferPointer(start: characters, count: count), as: UTF8.self)
    }
}

extension Optional: Bridged where Wrapped: Bridged {
    @inline(__always) func toPython() -> PyPtr {
        if let self { return self.toPython() }
        py.incref(py.none)
        return py.none
    }
    @inline(__always) static func fromPython(_ p: PyPtr) -> Wrapped? { p == py.none ? nil : .some(Wrapped.fromPython(p)) }
}

extension Array: Bridged where Element: Bridged {
    func toPython() -> PyPtr {
        let list = py.listNew(count)
        for i in indices { _ = py.listSet(list, i, self[i].toPython()) }
        return list
    }
    static func fromPython(_ p: PyPtr) -> [Element] {
        let count = py.sequenceSize(p)
        if count < 0 { failed("Array") }
        return Array(unsafeUninitializedCapacity: count) { memory, filled in
            for i in 0..<count {
                guard let item = py.sequenceItem(p, i) else { failed("Array") }
                (memory.baseAddress! + i).initialize(to: Element.fromPython(item))
                py.decref(item)
                filled = i + 1
            }
        }
    }
}

extension Array where Element == Int {
    /// Shapes are read often and have at most four dimensions; Swift makes arrays of a known length in half the time.
    static func fromPython(_ p: PyPtr) -> [Int] {
        @inline(__always) func at(_ i: Int) -> Int {
            guard let item = py.sequenceItem(p, i) else { failed("Array") }
            defer { py.decref(item) }
            return Int.fromPython(item)
        }
        switch py.sequenceSize(p) {
        case 0: return []
        case 1: return [at(0)]
        case 2: return [at(0), at(1)]
        case 3: return [at(0), at(1), at(2)]
        case 4: return [at(0), at(1), at(2), at(3)]
        case let count where count > 4: return (0..<count).map(at)
        default: failed("Array")
        }
    }
}

/// Names to objects; no member of ML Compute gives a dictionary back.
func dictionary<Value: Bridged>(_ values: [String: Value]) -> PyPtr {
    let made = py.dictNew()
    for (name, value) in values {
        let key = rt.shortNames.python(name), object = value.toPython()
        if py.dictSet(made, key, object) != 0 { failed("Dictionary") }
        py.decref(key)
        py.decref(object)
    }
    return made
}

func dictionary<Value: Bridged>(_ values: [String: Value]?) -> PyPtr {
    if let values { return dictionary(values) }
    py.incref(py.none)
    return py.none
}

func text(_ p: PyPtr?) -> String {
    guard let p else { failed("a description") }
    defer { py.decref(p) }
    return String.fromPython(p)
}

// MARK: numbers of any kind, and pairs

func number(_ value: NSNumber) -> PyPtr {
    switch UInt8(bitPattern: value.objCType.pointee) {
    case UInt8(ascii: "f"), UInt8(ascii: "d"): return value.doubleValue.toPython()
    case UInt8(ascii: "B"): return value.boolValue.toPython()
    case UInt8(ascii: "Q") where value.uint64Value > UInt64(Int.max): return py.unsignedFrom(value.uint64Value)       // no Int holds it
    default: return value.intValue.toPython()
    }
}

func numberOrNil(_ p: PyPtr) -> NSNumber? {
    if p == py.none { return nil }
    let value = py.longAs(p)
    if value != -1 || py.errorOccurred() == nil { return NSNumber(value: value) }
    py.errorClear()
    let large = py.unsignedAs(p)        // a seed may be a UInt64 that no Int holds
    if py.errorOccurred() != nil { failed("NSNumber") }
    return NSNumber(value: large)
}

func pair(_ first: Int, _ second: Int) -> PyPtr {
    let tuple = py.tupleNew(2)
    _ = py.tupleSet(tuple, 0, first.toPython())
    _ = py.tupleSet(tuple, 1, second.toPython())
    return tuple
}

func item(_ p: PyPtr, _ i: Int) -> Int {
    guard let found = py.tupleGet(p, i) else { failed("a pair") }
    return Int.fromPython(found)
}

// MARK: memory

/// CPython's Py_buffer is 80 bytes on every 64-bit machine; it starts with the address, the owner and the length.
enum PyBuffer {
    static let size = 80
    static func address(_ buffer: UnsafeMutableRawPointer) -> UnsafeMutableRawPointer? { buffer.load(as: UnsafeMutableRawPointer?.self) }
    static func length(_ buffer: UnsafeMutableRawPointer) -> Int { buffer.load(fromByteOffset: 16, as: Int.self) }
}

private let readable: Int32 = 0x100         // PyBUF_READ
private let writable: Int32 = 0x200         // PyBUF_WRITE

/// The caller's memory as Python sees it: no copy, and the caller's still.
func memory(_ at: UnsafeRawPointer, _ length: Int) -> PyPtr { view(at, length, readable) }
func memory(_ at: UnsafeMutableRawPointer, _ length: Int) -> PyPtr { view(at, length, writable) }

private func view(_ at: UnsafeRawPointer, _ length: Int, _ access: Int32) -> PyPtr {
    guard let made = py.memoryview(at, max(0, length), access) else { failed("memory") }
    return made
}

/// `body` gets where the bytes of a Python object lie, and how many they are.
private func looking<Result>(into p: PyPtr, _ who: StaticString, _ body: (UnsafeMutableRawPointer?, Int) -> Result) -> Result {
    withUnsafeTemporaryAllocation(byteCount: PyBuffer.size, alignment: 8) { raw in
        let buffer = raw.baseAddress!
        if py.getBuffer(p, buffer, 0) != 0 { failed(who) }
        defer { py.releaseBuffer(buffer) }
        return body(PyBuffer.address(buffer), PyBuffer.length(buffer))
    }
}

func address(_ p: PyPtr) -> UnsafeMutableRawPointer {
    looking(into: p, "bytes") { start, _ in start ?? UnsafeMutableRawPointer(bitPattern: 8)! }
}

extension Data: Bridged {
    func toPython() -> PyPtr { withUnsafeBytes { py.bytesFrom($0.baseAddress, $0.count) } }

    /// A copy, since Data is a value. On Linux nothing else is one: what is made with `bytesNoCopy` is written in place when a
    /// program changes it, and an NSData or a DispatchData is copied anyway when it becomes a Data.
    static func fromPython(_ p: PyPtr) -> Data {
        looking(into: p, "Data") { start, length in start.map { Data(bytes: $0, count: length) } ?? Data() }
    }
}
