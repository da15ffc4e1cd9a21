// The name alone, for programs that import Cocoa and use Foundation.

@_exported import Foundation
