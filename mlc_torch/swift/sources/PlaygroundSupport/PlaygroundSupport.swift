// The page of a playground, as far as a program without windows needs it.

@_exported import Foundation

public final class PlaygroundPage: @unchecked Sendable {
    public static let current = PlaygroundPage()

    private let lock = NSLock()
    private var indefinite = false
    private var waiting = false
    private var finished = false

    /// Where this is true, the page goes on after its last line until `finishExecution()`, for half a minute at most, as in Xcode.
    public var needsIndefiniteExecution: Bool {
        get { lock.withLock { indefinite } }
        set {
            let first = lock.withLock { () -> Bool in
                defer { indefinite = newValue }
                return newValue && !indefinite
            }
            if first { atexit { PlaygroundPage.current.goOn() } }
        }
    }

    public func finishExecution() -> Never {
        let ending = lock.withLock { () -> Bool in
            finished = true
            return waiting
        }
        if ending, !Thread.isMainThread { while true { sleep(60) } }        // the main thread is leaving already; two may not
        exit(0)
    }

    private func goOn() {
        let goes = lock.withLock { () -> Bool in
            waiting = indefinite && !finished
            return waiting
        }
        guard goes else { return }
        let last = Date().addingTimeInterval(30)
        while Date() < last, !lock.withLock({ finished }) { _ = RunLoop.main.run(mode: .default, before: Date().addingTimeInterval(0.02)) }
    }
}
