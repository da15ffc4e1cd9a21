// The functions of CPython that the bridge calls, found in the loaded library by name: no headers, nothing to link.

import Foundation

typealias PyPtr = UnsafeMutableRawPointer
typealias Arguments = UnsafePointer<PyPtr?>

/// `METH_FASTCALL`'s signature: the bound object, the arguments, and how many they are.
typealias FastCall = @convention(c) (PyPtr?, Arguments?, Int) -> PyPtr?

struct CPython: @unchecked Sendable {
    let isInitialized: @convention(c) () -> Int32
    let setProgramName: @convention(c) (UnsafePointer<Int32>) -> Void
    let initialize: @convention(c) (Int32) -> Void
    let run: @convention(c) (UnsafePointer<CChar>) -> Int32
    let importModule: @convention(c) (UnsafePointer<CChar>) -> PyPtr?

    let ensure: @convention(c) () -> Int32
    let release: @convention(c) (Int32) -> Void
    let thisThreadState: @convention(c) () -> PyPtr?
    let saveThread: @convention(c) () -> PyPtr?
    let restoreThread: @convention(c) (PyPtr?) -> Void
    let clearThread: @convention(c) (PyPtr) -> Void
    let deleteCurrentThread: @convention(c) () -> Void

    let incref: @convention(c) (PyPtr) -> Void
    let decref: @convention(c) (PyPtr) -> Void
    let vectorcall: @convention(c) (PyPtr, Arguments?, Int, PyPtr?) -> PyPtr?
    let vectorcallMethod: @convention(c) (PyPtr, Arguments?, Int, PyPtr?) -> PyPtr?
    let getAttribute: @convention(c) (PyPtr, PyPtr) -> PyPtr?
    let setAttribute: @convention(c) (PyPtr, PyPtr, PyPtr) -> Int32
    let getAttributeNamed: @convention(c) (PyPtr, UnsafePointer<CChar>) -> PyPtr?
    let str: @convention(c) (PyPtr) -> PyPtr?
    let repr: @convention(c) (PyPtr) -> PyPtr?
    let hash: @convention(c) (PyPtr) -> Int
    let compare: @convention(c) (PyPtr, PyPtr, Int32) -> Int32
    let type: @convention(c) (PyPtr) -> PyPtr

    let longFrom: @convention(c) (Int) -> PyPtr
    let longAs: @convention(c) (PyPtr) -> Int
    let unsignedFrom: @convention(c) (UInt64) -> PyPtr
    let unsignedAs: @convention(c) (PyPtr) -> UInt64
    let floatFrom: @convention(c) (Double) -> PyPtr
    let floatAs: @convention(c) (PyPtr) -> Double
    let isTrue: @convention(c) (PyPtr) -> Int32
    let unicodeFrom: @convention(c) (UnsafePointer<CChar>?, Int) -> PyPtr
    let unicodeIntern: @convention(c) (UnsafePointer<CChar>) -> PyPtr
    let unicodeAs: @convention(c) (PyPtr, UnsafeMutablePointer<Int>) -> UnsafePointer<CChar>?
    let listNew: @convention(c) (Int) -> PyPtr
    let listSet: @convention(c) (PyPtr, Int, PyPtr) -> Int32
    let tupleNew: @convention(c) (Int) -> PyPtr
    let tupleSet: @convention(c) (PyPtr, Int, PyPtr) -> Int32
    let tupleGet: @convention(c) (PyPtr, Int) -> PyPtr?
    let sequenceSize: @convention(c) (PyPtr) -> Int
    let sequenceItem: @convention(c) (PyPtr, Int) -> PyPtr?
    let dictNew: @convention(c) () -> PyPtr
    let dictSet: @convention(c) (PyPtr, PyPtr, PyPtr) -> Int32
    let bytesFrom: @convention(c) (UnsafeRawPointer?, Int) -> PyPtr
    let memoryview: @convention(c) (UnsafeRawPointer, Int, Int32) -> PyPtr?
    let getBuffer: @convention(c) (PyPtr, UnsafeMutableRawPointer, Int32) -> Int32
    let releaseBuffer: @convention(c) (UnsafeMutableRawPointer) -> Void
    let capsuleNew: @convention(c) (UnsafeMutableRawPointer, UnsafePointer<CChar>?, (@convention(c) (PyPtr) -> Void)?) -> PyPtr
    let capsuleGet: @convention(c) (PyPtr, UnsafePointer<CChar>?) -> UnsafeMutableRawPointer?
    let functionNew: @convention(c) (UnsafeMutableRawPointer, PyPtr?, PyPtr?) -> PyPtr

    let errorPrint: @convention(c) () -> Void
    let errorClear: @convention(c) () -> Void
    let errorOccurred: @convention(c) () -> PyPtr?

    let none: PyPtr
    let yes: PyPtr
    let no: PyPtr

    init(library: UnsafeMutableRawPointer) {
        func find<T>(_ name: String) -> T {
            guard let symbol = dlsym(library, name) else { end("this Python has no \(name); Python 3.11 to 3.14 is needed") }
            return unsafeBitCast(symbol, to: T.self)
        }
        isInitialized = find("Py_IsInitialized")
        setProgramName = find("Py_SetProgramName")
        initialize = find("Py_InitializeEx")
        run = find("PyRun_SimpleString")
        importModule = find("PyImport_ImportModule")
        ensure = find("PyGILState_Ensure")
        release = find("PyGILState_Release")
        thisThreadState = find("PyGILState_GetThisThreadState")
        saveThread = find("PyEval_SaveThread")
        restoreThread = find("PyEval_RestoreThread")
        clearThread = find("PyThreadState_Clear")
        deleteCurrentThread = find("PyThreadState_DeleteCurrent")
        incref = find("Py_IncRef")
        decref = find("Py_DecRef")
        vectorcall = find("PyObject_Vectorcall")
        vectorcallMethod = find("PyObject_VectorcallMethod")
        getAttribute = find("PyObject_GetAttr")
        setAttribute = find("PyObject_SetAttr")
        getAttributeNamed = find("PyObject_GetAttrString")
        str = find("PyObject_Str")
        repr = find("PyObject_Repr")
        hash = find("PyObject_Hash")
        compare = find("PyObject_RichCompareBool")
        type = find("PyObject_Type")
        longFrom = find("PyLong_FromSsize_t")
        longAs = find("PyLong_AsSsize_t")
        unsignedFrom = find("PyLong_FromUnsignedLongLong")
        unsignedAs = find("PyLong_AsUnsignedLongLong")
        floatFrom = find("PyFloat_FromDouble")
        floatAs = find("PyFloat_AsDouble")
        isTrue = find("PyObject_IsTrue")
        unicodeFrom = find("PyUnicode_FromStringAndSize")
        unicodeIntern = find("PyUnicode_InternFromString")
        unicodeAs = find("PyUnicode_AsUTF8AndSize")
        listNew = find("PyList_New")
        listSet = find("PyList_SetItem")
        tupleNew = find("PyTuple_New")
        tupleSet = find("PyTuple_SetItem")
        tupleGet = find("PyTuple_GetItem")
        sequenceSize = find("PySequence_Size")
        sequenceItem = find("PySequence_GetItem")
        dictNew = find("PyDict_New")
        dictSet = find("PyDict_SetItem")
        bytesFrom = find("PyBytes_FromStringAndSize")
        memoryview = find("PyMemoryView_FromMemory")
        getBuffer = find("PyObject_GetBuffer")
        releaseBuffer = find("PyBuffer_Release")
        capsuleNew = find("PyCapsule_New")
        capsuleGet = find("PyCapsule_GetPointer")
        functionNew = find("PyCFunction_NewEx")
        errorPrint = find("PyErr_Print")
        errorClear = find("PyErr_Clear")
        errorOccurred = find("PyErr_Occurred")
        none = find("_Py_NoneStruct")
        yes = find("_Py_TrueStruct")
        no = find("_Py_FalseStruct")
    }
}

/// Say why and end the program. Everything that cannot be answered in Swift's types comes here.
func end(_ text: String) -> Never {
    FileHandle.standardError.write(Data("MLCompute: \(text)\n".utf8))
    exit(70)
}
