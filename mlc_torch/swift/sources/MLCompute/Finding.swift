// Which Python this program uses, and how it is started.

import Foundation

/// A Python: the library to load, and the executable that it is to believe it was started as, which decides about
/// virtual environments. Both are nil where this process has a Python already.
struct FoundPython {
    var library: String?
    var executable: String?

    static func find() -> FoundPython {
        if let here = dlsym(dlopen(nil, RTLD_NOW), "Py_IsInitialized"),
           unsafeBitCast(here, to: (@convention(c) () -> Int32).self)() != 0 {
            return FoundPython()
        }
        let environment = ProcessInfo.processInfo.environment
        if let library = environment["MLC_TORCH_LIBPYTHON"], let executable = environment["MLC_TORCH_PYTHON"] {
            return FoundPython(library: library, executable: executable)      // `mlc-torch swift run` says both
        }
        let executable = environment["MLC_TORCH_PYTHON"] ?? environment["VIRTUAL_ENV"].map { $0 + "/bin/python" } ?? "python3"
        return ask(executable)
    }

    /// Python itself knows best where its library lies.
    private static func ask(_ executable: String) -> FoundPython {
        let way = "set MLC_TORCH_PYTHON to a Python that has mlc_torch, or start this program with `mlc-torch swift run`"
        guard let answer = popen("\(quoted(executable)) -c \(quoted(libpythonScript))", "r") else { end("cannot run \(executable); \(way)") }
        var text = ""
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: 65536) { line in
            while fgets(line.baseAddress!, Int32(line.count), answer) != nil { text += String(cString: line.baseAddress!) }
        }
        let status = pclose(answer)
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
        guard status == 0, lines.count >= 2 else { end("\(executable) did not answer; \(way)") }
        guard !lines[0].isEmpty else {
            end("\(lines[1]) has no shared library (libpython) that a program could load; \(way), which runs it inside Python")
        }
        return FoundPython(library: lines[0], executable: lines[1])
    }

    private static func quoted(_ word: String) -> String { "'" + word.replacingOccurrences(of: "'", with: "'\\''") + "'" }
}

/// Runs when the library is loaded (the linker's option -init), before the program's first line.
@_cdecl("mlc_torch_loaded") public func _loaded() {
    // What was printed before a trap is to be seen, also where standard output is a pipe.
    if isatty(1) == 0, let stdout = dlsym(nil, "stdout")?.load(as: UnsafeMutablePointer<FILE>?.self) { setvbuf(stdout, nil, _IONBF, 0) }
    _metalDevices = allDevices
    waitForTheStart()
}
