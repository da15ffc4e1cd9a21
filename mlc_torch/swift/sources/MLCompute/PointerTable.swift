// Pointers by pointer. Each object that crosses the bridge is looked up, entered and taken out, and Swift's Dictionary,
// made for keys that an enemy may choose, would take most of that time.

struct PointerTable {
    private typealias Entry = (key: UnsafeMutableRawPointer?, value: UnsafeMutableRawPointer?)
    private var entries: UnsafeMutablePointer<Entry>
    private var capacity: Int       // a power of two, at most half of it in use
    private(set) var count = 0

    init(capacity: Int = 256) {
        self.capacity = capacity
        entries = .allocate(capacity: capacity)
        entries.initialize(repeating: (nil, nil), count: capacity)
    }

    subscript(key: UnsafeMutableRawPointer) -> UnsafeMutableRawPointer? {
        var i = home(key)
        while let found = entries[i].key {
            if found == key { return entries[i].value }
            i = (i + 1) & (capacity - 1)
        }
        return nil
    }

    mutating func enter(_ key: UnsafeMutableRawPointer, _ value: UnsafeMutableRawPointer) {
        if 2 * (count + 1) > capacity { grow() }
        var i = home(key)
        while let found = entries[i].key, found != key { i = (i + 1) & (capacity - 1) }
        if entries[i].key == nil { count += 1 }
        entries[i] = (key, value)
    }

    /// Only if `value` is what stands there.
    mutating func remove(_ key: UnsafeMutableRawPointer, _ value: UnsafeMutableRawPointer) {
        var i = home(key)
        while let found = entries[i].key, found != key { i = (i + 1) & (capacity - 1) }
        guard entries[i].key == key, entries[i].value == value else { return }
        count -= 1
        // Whatever was pushed past this place comes nearer again, so that no search stops too early.
        var next = (i + 1) & (capacity - 1)
        while let other = entries[next].key {
            if (next &- home(other)) & (capacity - 1) >= (next &- i) & (capacity - 1) {
                entries[i] = entries[next]
                i = next
            }
            next = (next + 1) & (capacity - 1)
        }
        entries[i] = (nil, nil)
    }

    private func home(_ key: UnsafeMutableRawPointer) -> Int {
        // Fibonacci hashing: addresses differ in their middle bits.
        Int(truncatingIfNeeded: (UInt(bitPattern: key) &* 0x9E37_79B9_7F4A_7C15) >> 24) & (capacity - 1)
    }

    private mutating func grow() {
        var larger = PointerTable(capacity: 2 * capacity)
        for i in 0..<capacity { if let key = entries[i].key, let value = entries[i].value { larger.enter(key, value) } }
        entries.deallocate()
        self = larger
    }
}
