// The class that ML Compute's sample programs put their code in. There are no windows.

@_exported import Foundation

open class UIViewController: NSObject {
    open func viewDidLoad() {}
}
