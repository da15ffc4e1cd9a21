// The base of every class here: one Swift object for one Python object, which it keeps alive.

import Foundation

/// The Swift runtime's own: retain an object unless its end has begun.
@_silgen_name("swift_tryRetain") private func tryRetain(_ object: UnsafeMutableRawPointer) -> UnsafeMutableRawPointer?

open class _MLCObject: NSObject {
    private(set) var object: PyPtr

    /// The descriptor that was read last. Its owner keeps it, as Apple's does, and need not make a new one each time.
    private var held: _MLCObject?

    /// Takes over one reference; the caller holds Python's lock. Not for programs: it is public so that their subclasses
    /// inherit it, and with it every convenience initializer.
    public init(_object: UnsafeMutableRawPointer) {
        object = _object
        super.init()
        rt.alive.enter(object, Unmanaged.passUnretained(self).toOpaque())
    }

    public override init() {
        let gil = GIL(); defer { gil.end() }
        object = callClass("init()", Self.pythonClass, (), 0, nil)
        if object == py.none { refused("init()") }
        super.init()
        rt.alive.enter(object, Unmanaged.passUnretained(self).toOpaque())
    }

    deinit {
        let gil = GIL(); defer { gil.end() }
        rt.alive.remove(object, Unmanaged.passUnretained(self).toOpaque())      // unless another has come in its place
        py.decref(object)
    }

    /// Which class of Python's an instance is made of; a program's own subclass has that of its superclass.
    class var pythonClass: PyPtr { end("\(self) cannot be made") }

    @inline(__always) func holding<Descriptor: _MLCObject>(_ descriptor: Descriptor) -> Descriptor {
        if held !== descriptor { held = descriptor }
        return descriptor
    }

    /// A new Swift object that takes over one reference to `p`.
    class func wrapping(_ p: PyPtr) -> _MLCObject { end("\(self) cannot be made") }

    /// The Swift object of a borrowed Python object.
    static func of(_ p: PyPtr) -> _MLCObject {
        if let known = rt.alive[p], let object = tryRetain(known) {
            return Unmanaged<_MLCObject>.fromOpaque(object).takeRetainedValue()
        }
        let cls = py.type(p); defer { py.decref(cls) }
        py.incref(p)
        if let swift = swiftClass(cls) { return swift.wrapping(p) }
        // A Python subclass of one of ours: the nearest class that Swift knows.
        guard let order = py.getAttributeNamed(cls, "__mro__") else { failed("__mro__") }
        defer { py.decref(order) }
        for i in 0..<py.sequenceSize(order) {
            if let swift = swiftClass(py.tupleGet(order, i)!) { return swift.wrapping(p) }
        }
        end("Swift has no class for \(text(py.repr(p)))")
    }

    @inline(__always) private static func swiftClass(_ cls: PyPtr) -> _MLCObject.Type? {
        rt.swiftClasses[cls].map { unsafeBitCast($0, to: _MLCObject.Type.self) }
    }

    open override func isEqual(_ other: Any?) -> Bool {
        guard let other = other as? _MLCObject else { return false }
        if other === self { return true }
        let gil = GIL(); defer { gil.end() }
        let equal = py.compare(object, other.object, 2)       // Py_EQ
        if equal < 0 { failed("==") }
        return equal == 1
    }

    open override var hash: Int {
        let gil = GIL(); defer { gil.end() }
        let value = py.hash(object)
        if value == -1 { failed("hash") }
        return value
    }

    open override var description: String {
        let gil = GIL(); defer { gil.end() }
        return text(py.repr(object))
    }

    open override var debugDescription: String { description }

    /// What `copy()` gives for the classes that conform to NSCopying.
    func copied() -> Any {
        let gil = GIL(); defer { gil.end() }
        var argument: PyPtr? = object
        guard let made = py.vectorcall(rt.copy, &argument, 1, nil) else { failed("copy()") }
        defer { py.decref(made) }
        return _MLCObject.of(made)
    }
}

extension _MLCObject: Bridged {
    @inline(__always) func toPython() -> PyPtr { py.incref(object); return object }
    @inline(__always) static func fromPython(_ p: PyPtr) -> Self {
        guard let object = of(p) as? Self else { end("\(text(py.repr(p))) is no \(self)") }
        return object
    }
}
