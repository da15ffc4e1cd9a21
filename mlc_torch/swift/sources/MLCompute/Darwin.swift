// What Apple's Foundation and ObjectiveC modules give every program, and Linux's do not.

import Foundation

public typealias CFAbsoluteTime = Double
public func CFAbsoluteTimeGetCurrent() -> CFAbsoluteTime { Date().timeIntervalSinceReferenceDate }

@discardableResult public func autoreleasepool<Result>(invoking body: () throws -> Result) rethrows -> Result { try body() }
