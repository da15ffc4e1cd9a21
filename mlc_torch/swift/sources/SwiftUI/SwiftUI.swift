// The name alone, and what SwiftUI passes on of Combine. There are no views.

@_exported import Foundation
#if canImport(Combine)
@_exported import Combine
#endif
