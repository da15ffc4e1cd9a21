// Torch's GPUs as Metal's devices.

import Foundation

final class TorchDevice: MTLDevice, @unchecked Sendable {
    /// What torch calls it: "cuda:0".
    let torchName: String
    let name: String
    let registryID: UInt64
    let recommendedMaxWorkingSetSize: UInt64

    /// From a tuple of mlc_torch.swift.inside: torch's name, the hardware's name, its number, its memory.
    init(_ p: PyPtr) {
        torchName = String.fromPython(py.tupleGet(p, 0)!)
        name = String.fromPython(py.tupleGet(p, 1)!)
        registryID = UInt64(item(p, 2))
        recommendedMaxWorkingSetSize = UInt64(item(p, 3))
    }
}

extension TorchDevice: Equatable {
    static func == (a: TorchDevice, b: TorchDevice) -> Bool { a.torchName == b.torchName }
}

func devices(_ list: [any MTLDevice]) -> PyPtr {
    list.map { device in
        guard let device = device as? TorchDevice else { end("MLCDevice(gpuDevices:) takes the devices of MTLCopyAllDevices()") }
        return device.torchName
    }.toPython()
}

func deviceList(_ p: PyPtr) -> [any MTLDevice] {
    py.incref(p)
    return described(callInside("described", p))
}

func allDevices() -> [any MTLDevice] {
    let gil = GIL(); defer { gil.end() }
    return described(callInside("all_devices", ()))
}

private func described(_ list: PyPtr) -> [any MTLDevice] {
    defer { py.decref(list) }
    return (0..<py.sequenceSize(list)).map { i in
        let entry = py.sequenceItem(list, i)!; defer { py.decref(entry) }
        return TorchDevice(entry)
    }
}
