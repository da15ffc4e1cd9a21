// The Python that computes, started when the program first uses ML Compute, and the tables that the generated part indexes.

@_exported import Foundation
#if canImport(Metal)
@_exported import Metal
#endif
#if canImport(Combine)
@_exported import Combine       // Apple's Foundation brings it
#endif

/// Set once, by the first call that takes Python's lock, and never freed. Whoever holds the lock may use `rt` and `py`,
/// which are reached without a check and without counting references: that would be most of what a call costs.
nonisolated(unsafe) private var running: UnsafeMutablePointer<Runtime>?

var rt: Runtime {
    @inline(__always) unsafeAddress { UnsafePointer(running.unsafelyUnwrapped) }
    @inline(__always) unsafeMutableAddress { running.unsafelyUnwrapped }
}
var py: CPython { @inline(__always) unsafeAddress { UnsafePointer(running.unsafelyUnwrapped.pointer(to: \.python).unsafelyUnwrapped) } }

/// A lazy global is made once, by one thread, while others wait.
private let start: Void = {
    starting.lock(); defer { starting.unlock() }
    let made = UnsafeMutablePointer<Runtime>.allocate(capacity: 1)
    made.initialize(to: Runtime())
    running = made
}()

struct Runtime {
    let python: CPython
    let inside: PyPtr           // the module mlc_torch.swift.inside
    let copy: PyPtr
    private(set) var classes: UnsafeMutablePointer<PyPtr>
    private(set) var names: UnsafeMutablePointer<PyPtr>
    private(set) var labels: UnsafeMutablePointer<PyPtr>
    /// The cases of all enumerations and the sets of all options, by raw value, one after another.
    private(set) var enums: UnsafeMutablePointer<PyPtr?>
    /// For each class of Python's the class of Swift's.
    private(set) var swiftClasses = PointerTable()

    /// The Swift object of each Python object that has one, unowned: an entry goes before its object does.
    var alive = PointerTable()
    var shortNames = ShortNames()
    let threadKey: pthread_key_t
    var ending = Ending()

    init() {
        let found = FoundPython.find()
        guard let library = dlopen(found.library, RTLD_NOW | RTLD_GLOBAL) else {
            end("cannot load Python's library: " + String(cString: dlerror()))
        }
        let python = CPython(library: library)
        self.python = python

        var state: Int32?
        if python.isInitialized() == 0 {
            let executable = found.executable!.unicodeScalars.map { Int32($0.value) } + [0]
            let kept = UnsafeMutablePointer<Int32>.allocate(capacity: executable.count)      // Python does not copy it
            kept.initialize(from: executable, count: executable.count)
            python.setProgramName(kept)
            python.initialize(0)
        } else {
            state = python.ensure()
        }
        // Python's module signal takes SIGINT over when it is imported; the program keeps the action it has, also while
        // torch is imported, which takes a second or two.
        var interrupt = sigaction()
        sigaction(SIGINT, nil, &interrupt)
        _ = python.run("import signal")
        sigaction(SIGINT, &interrupt, nil)
        // The folder that mlc_torch lies in, where the command found it; an installed one needs no help.
        _ = python.run("import os, sys; f = os.environ.get('MLC_TORCH_PATH'); f and f not in sys.path and sys.path.insert(0, f)")
        guard let module = python.importModule("mlc_torch"), let inside = python.importModule("mlc_torch.swift.inside"),
              let copy = python.getAttributeNamed(inside, "copy") else {
            python.errorPrint()
            end("\(found.executable ?? "this Python") cannot import mlc_torch (see above); install it there, or set MLC_TORCH_PYTHON")
        }
        self.inside = inside
        self.copy = copy

        classes = Runtime.kept(classTable.map { name, _ in
            guard let cls = python.getAttributeNamed(module, name) else { python.errorPrint(); end("mlc_torch has no \(name)") }
            return cls
        })
        for (i, entry) in classTable.enumerated() { swiftClasses.enter(classes[i], unsafeBitCast(entry.1, to: UnsafeMutableRawPointer.self)) }
        names = Runtime.kept(nameTable.map { python.unicodeIntern($0) })
        labels = Runtime.kept(labelTable.map { labels in
            let tuple = python.tupleNew(labels.count)
            for (i, label) in labels.enumerated() { _ = python.tupleSet(tuple, i, python.unicodeIntern(label)) }
            return tuple
        })
        enums = Runtime.kept(enumTable.flatMap { name, raws in
            guard let cls = python.getAttributeNamed(module, name) else { python.errorPrint(); end("mlc_torch has no \(name)") }
            var cases = [PyPtr?](repeating: nil, count: raws.last! + 1)
            for raw in raws {
                var argument: PyPtr? = python.longFrom(raw)
                guard let made = python.vectorcall(cls, &argument, 1, nil) else { python.errorPrint(); end("\(name) has no \(raw)") }
                cases[raw] = made
            }
            return cases
        })
        var key = pthread_key_t()
        pthread_key_create(&key) { Thread.detach($0) }
        threadKey = key
        if let state {
            python.release(state)
        } else {
            if python.run("import mlc_torch.swift.inside; mlc_torch.swift.inside.own_process()") != 0 { end("Python raised the error above") }
            _ = python.saveThread()
        }
        ending.order()
    }

    private static func kept<Object>(_ objects: [Object]) -> UnsafeMutablePointer<Object> {
        let memory = UnsafeMutablePointer<Object>.allocate(capacity: objects.count)
        memory.initialize(from: objects, count: objects.count)
        return memory
    }
}

// MARK: Python's lock

/// Held only inside the bridge: the program's own code never runs with it.
struct GIL {
    private let state: Int32
    @inline(__always) init() {
        if running == nil { _ = start }
        if pthread_getspecific(rt.threadKey) == nil { Thread.attach() }
        state = py.ensure()
        if state == GIL.taken { rt.ending.enter() }
        if rt.ending.isOver { stop() }
    }
    @inline(__always) func end() {
        if state == GIL.taken { rt.ending.leave() }
        py.release(state)
    }

    /// PyGILState_UNLOCKED: this thread did not hold the lock before.
    private static var taken: Int32 { 1 }

    @inline(never) private func stop() -> Never {
        end()
        while true { sleep(60) }
    }
}

/// A thread that Python did not start gets one Python thread state for its whole life, not one for each call.
private enum Thread {
    private static var notOurs: UnsafeMutableRawPointer { UnsafeMutableRawPointer(bitPattern: 1)! }

    static func attach() {
        guard py.thisThreadState() == nil else { pthread_setspecific(rt.threadKey, notOurs); return }
        _ = py.ensure()
        pthread_setspecific(rt.threadKey, py.saveThread())
    }

    static func detach(_ state: UnsafeMutableRawPointer?) {
        guard let state, state != notOurs else { return }
        // Not PyGILState_Release: the C library may have forgotten Python's own thread-local value by now.
        py.restoreThread(state)
        py.clearThread(state)
        py.deleteCurrentThread()
    }
}

/// The program's own code runs without the lock, so that it may wait for other threads that need it.
func outside(_ body: () -> Void) {
    rt.ending.leave()
    let saved = py.saveThread()
    body()
    py.restoreThread(saved)
    rt.ending.enter()
}

// MARK: calls. Arguments, a tuple of Python objects, are owned by the call; the answer is a new reference.

@inline(never) func failed(_ who: StaticString) -> Never {
    py.errorPrint()
    end("\(who): Python raised the error above")
}

/// A tuple of pointers lies in memory as C's array of them does, on the stack; an array of Swift's would be allocated.
@inline(__always) private func call<Values>(
    _ who: StaticString, _ arguments: Values, borrowed: Int, _ body: (Arguments?) -> PyPtr?
) -> PyPtr {
    withUnsafeBytes(of: arguments) { memory in
        let values = memory.baseAddress?.assumingMemoryBound(to: PyPtr?.self)
        let answer = body(values)
        for i in borrowed..<count(arguments) { py.decref(values.unsafelyUnwrapped[i].unsafelyUnwrapped) }
        guard let answer else { failed(who) }
        return answer
    }
}

@inline(__always) private func count<Values>(_ arguments: Values) -> Int { MemoryLayout<Values>.size / MemoryLayout<PyPtr>.size }

func callClass<Values>(_ who: StaticString, _ cls: PyPtr, _ arguments: Values, _ positional: Int, _ labels: PyPtr?) -> PyPtr {
    call(who, arguments, borrowed: 0) { py.vectorcall(cls, $0, positional, labels) }
}

/// The first argument is the receiver, borrowed.
func callMethod<Values>(_ who: StaticString, _ name: PyPtr, _ arguments: Values, _ positional: Int, _ labels: PyPtr?) -> PyPtr {
    call(who, arguments, borrowed: 1) { py.vectorcallMethod(name, $0, positional, labels) }
}

@inline(__always) func getAttribute(_ who: StaticString, _ object: PyPtr, _ name: PyPtr) -> PyPtr {
    guard let value = py.getAttribute(object, name) else { failed(who) }
    return value
}

func setAttribute(_ who: StaticString, _ object: PyPtr, _ name: PyPtr, _ value: PyPtr) {
    defer { py.decref(value) }
    if py.setAttribute(object, name, value) != 0 { failed(who) }
}

/// A function of mlc_torch.swift.inside.
func callInside<Values>(_ name: StaticString, _ arguments: Values) -> PyPtr {
    let function = name.withUTF8Buffer { $0.withMemoryRebound(to: CChar.self) { py.getAttributeNamed(rt.inside, $0.baseAddress!) } }
    guard let function else { failed(name) }
    defer { py.decref(function) }
    return callClass(name, function, arguments, count(arguments), nil)
}

/// An initializer that Swift declares as never nil was refused; the reason stands above, on standard error.
func refused(_ who: StaticString) -> Never { end("\(who) was refused, for the reason above; Swift declares that it never answers nil") }
