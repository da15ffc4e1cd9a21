// The names that inputs and outputs go by, which every step of a training gives again. Python's strings of them are kept:
// making one takes longer than the look-up, and Python compares the same string by its address.

import Foundation

struct ShortNames {
    /// A name of up to 15 bytes is two words: its bytes, and in the last byte how many there are.
    private typealias Words = (UInt64, UInt64)
    private static let count = 64
    private let places: UnsafeMutablePointer<(words: Words, object: PyPtr?)>

    init() {
        places = .allocate(capacity: ShortNames.count)
        places.initialize(repeating: ((0, 0), nil), count: ShortNames.count)
    }

    /// A new reference. A name that is long is made anew; one whose place is taken takes it over.
    func python(_ name: String) -> PyPtr {
        var name = name
        return name.withUTF8 { utf8 in
            guard utf8.count < MemoryLayout<Words>.size else { return made(utf8) }
            var words: Words = (0, 0)
            withUnsafeMutableBytes(of: &words) { memory in
                memory.copyMemory(from: UnsafeRawBufferPointer(utf8))
                memory[15] = UInt8(utf8.count)
            }
            let mixed = (words.0 ^ (words.1 &* 31)) &* 0x9E37_79B9_7F4A_7C15
            let place = places + Int(truncatingIfNeeded: mixed >> 58)       // 64 places
            if place.pointee.object == nil || place.pointee.words != words {
                let before = place.pointee.object
                place.pointee = (words, made(utf8))
                if let before { py.decref(before) }
            }
            let object = place.pointee.object.unsafelyUnwrapped
            py.incref(object)
            return object
        }
    }

    private func made(_ utf8: UnsafeBufferPointer<UInt8>) -> PyPtr {
        if utf8.allSatisfy({ $0 < 0x80 }) { return utf8.withMemoryRebound(to: CChar.self) { py.unicodeFrom($0.baseAddress, $0.count) } }
        // An é of one character and an é of two are the same name in Swift, and are to be in Python.
        return String(decoding: utf8, as: UTF8.self).precomposedStringWithCanonicalMapping.toPython()
    }
}
