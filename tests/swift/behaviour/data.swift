// What `tensor.data` gives is a value. Prints one line for each fact that does not hold, and "done".
import MLCompute

func check(_ what: String, _ holds: Bool) { if !holds { print("FAIL", what) } }
extension Data { var floats: [Float] { withUnsafeBytes { Array($0.bindMemory(to: Float.self)) } } }

let changes: [(String, (inout Data) -> Void)] = [
    ("a byte", { $0[0] = 9 }),
    ("resetBytes", { $0.resetBytes(in: 0..<4) }),
    ("withUnsafeMutableBytes", { $0.withUnsafeMutableBytes { (bytes: UnsafeMutableRawBufferPointer) in bytes[1] = 9 } }),
    ("append", { $0.append(1) }),
    ("replaceSubrange", { $0.replaceSubrange(0..<2, with: [7, 7]) }),
    ("removeAll", { $0.removeAll(keepingCapacity: true) }),
]
for count in [2, 3, 4, 1024] {
    let ones = [Float](repeating: 1, count: count)
    for (name, change) in changes {
        let filled = MLCTensor(shape: [count], fillWithData: 1, dataType: .float32)
        var copy = filled.data!
        change(&copy)
        check("\(name) of \(4 * count) bytes stays in the copy", copy != filled.data! && filled.data!.floats == ones)

        ones.withUnsafeBytes { memory in
            let data = MLCTensorData(immutableBytesNoCopy: memory.baseAddress!, length: 4 * count)
            let constant = MLCTensor(shape: [count], data: data, dataType: .float32)
            var copy = constant.data!
            change(&copy)
            check("\(name) of a constant's \(4 * count) bytes", constant.data!.floats == ones && ones.allSatisfy { $0 == 1 })
        }
    }

    let numbers = UnsafeMutablePointer<Float>.allocate(capacity: count)
    numbers.initialize(repeating: 1, count: count)
    var freed = 0
    var kept: Data
    do {
        let data = MLCTensorData(bytesNoCopy: numbers, length: 4 * count) { bytes, length in
            memset(bytes, 0xff, length)
            bytes.deallocate()
            freed += 1
        }
        let tensor = MLCTensor(shape: [count], data: data, dataType: .float32)
        kept = tensor.data!
        numbers[0] = 5
        check("\(4 * count) bytes stay what they were when they were read", kept.floats == ones && tensor.data!.floats[0] == 5)
    }
    check("\(4 * count) bytes outlive their tensor", freed == 1 && kept.floats == ones)
}

// The memory of a page that nobody may write
let page = mmap(nil, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)!
let zeros = MLCTensor(shape: [4], data: MLCTensorData(immutableBytesNoCopy: page, length: 16), dataType: .float32)
var own = zeros.data!
own[0] = 1
check("read-only memory", own.count == 16 && zeros.data!.floats == [0, 0, 0, 0])

// Memory is freed when nobody looks into it any more
var freed = 0
do {
    let memory = UnsafeMutableRawPointer.allocate(byteCount: 64, alignment: 16)
    var tensor: MLCTensor?
    do {
        let data = MLCTensorData(bytesNoCopy: memory, length: 64) { bytes, _ in bytes.deallocate(); freed += 1 }
        tensor = MLCTensor(shape: [16], data: data, dataType: .float32)
    }
    check("a tensor keeps its memory", freed == 0 && tensor != nil)
    tensor = nil
    check("and lets it go", freed == 1)
}
print("done")
