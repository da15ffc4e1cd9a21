"""Pieces of Swift that several members of the graphs are declared with."""

DATA = "[String : MLCTensorData]"
TENSORS = "[String : MLCTensor]"
LABELS_DATA = f"lossLabelsData: {DATA}?, lossLabelWeightsData: {DATA}?"
OPTIONS = "options: MLCExecutionOptions = []"
HANDLER = "completionHandler: MLCGraphCompletionHandler? = nil) -> Bool"
TIMED = "-> (result: MLCTensor?, executionTime: TimeInterval)"
COMPILE = "options: MLCGraphCompilationOptions = [], device: MLCDevice"
