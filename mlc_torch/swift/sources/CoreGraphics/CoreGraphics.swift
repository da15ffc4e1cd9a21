// Nothing but what Foundation has on Linux: CGFloat, CGPoint, CGSize, CGRect.

@_exported import Foundation
