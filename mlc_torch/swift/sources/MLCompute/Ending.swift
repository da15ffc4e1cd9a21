// The program's end, while other threads may be computing. Torch's libraries are taken down then, and what still uses them
// crashes or fails, so calls that have begun come to their end first, and no other begins.

import Foundation

struct Ending {
    /// How many threads are inside the bridge. One that waits for Python's lock there is; one in a handler of the program's is not.
    fileprivate var callers = 0
    /// The thread that ends the program, once it has begun to.
    fileprivate var leaving: pthread_t?
    private var calls = 0, nextOrder = 1

    @inline(__always) mutating func enter() { callers &+= 1 }

    @inline(__always) mutating func leave() {
        callers &-= 1
        calls &+= 1
        if calls >= nextOrder { order() }
    }

    /// Whether this thread may not go on.
    @inline(__always) var isOver: Bool { leaving != nil && pthread_equal(leaving!, pthread_self()) == 0 }

    /// What was ordered last for the program's end is done first, and torch orders something of its own whenever it does a
    /// thing for the first time. So this is ordered again and again, ever more rarely: two hundred times in a billion calls.
    @inline(never) mutating func order() {
        nextOrder = calls + calls / 8 + 1
        on_exit({ status, _ in finish(status) }, nil)
    }
}

/// Python's lock is kept for good: no other thread runs Python after this.
private func finish(_ status: Int32) {
    _ = GIL()
    if rt.ending.leaving != nil { return }
    rt.ending.leaving = pthread_self()
    let last = Date().addingTimeInterval(2)
    while rt.ending.callers > 1, Date() < last {
        let saved = py.saveThread()
        usleep(500)
        py.restoreThread(saved)
    }
    if let function = py.getAttributeNamed(rt.inside, "finish"), py.vectorcall(function, nil, 0, nil) == nil { py.errorPrint() }
    if rt.ending.callers > 1 { endNow(status) }         // one takes long, and would not survive the rest of the end
    // Should the program have ordered something that waits for one of those threads, it would wait forever.
    Thread.detachNewThread {
        sleep(60)
        endNow(status)
    }
}

private func endNow(_ status: Int32) -> Never {
    fflush(nil)
    _exit(status)
}

/// Held while Python starts and torch is imported.
let starting = NSRecursiveLock()

/// C++'s destructors of a thread's own variables: the C library calls them first when this thread ends the program.
@_silgen_name("__cxa_thread_atexit_impl") private func atEndOfThread(
    _ body: @convention(c) (UnsafeMutableRawPointer?) -> Void, _ argument: UnsafeMutableRawPointer?, _ library: UnsafeRawPointer
) -> Int32

/// For the main thread: if the program ends while another thread imports torch, that comes to its end first, too.
func waitForTheStart() { _ = atEndOfThread({ _ in starting.lock(); starting.unlock() }, nil, #dsohandle) }
