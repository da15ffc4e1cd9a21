// What ML Compute programs name of Metal: the list of GPUs. Shaders, buffers and queues are not here.

@_exported import Foundation

public protocol MTLDevice: AnyObject {
    var name: String { get }
    var registryID: UInt64 { get }
    var isLowPower: Bool { get }
    var isHeadless: Bool { get }
    var isRemovable: Bool { get }
    var hasUnifiedMemory: Bool { get }
    var recommendedMaxWorkingSetSize: UInt64 { get }
}

extension MTLDevice {
    public var isLowPower: Bool { false }
    public var isHeadless: Bool { true }
    public var isRemovable: Bool { false }
    public var hasUnifiedMemory: Bool { false }
}

/// Given by the module MLCompute when it is loaded.
nonisolated(unsafe) public var _metalDevices: (() -> [any MTLDevice])?

public func MTLCopyAllDevices() -> [any MTLDevice] {
    if _metalDevices == nil { _ = dlopen("libMLCompute.so", RTLD_NOW | RTLD_GLOBAL) }       // a program that imports Metal alone
    return _metalDevices?() ?? []
}

public func MTLCreateSystemDefaultDevice() -> (any MTLDevice)? { MTLCopyAllDevices().first }
