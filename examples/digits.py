"""The multi-layer perceptron of JacopoMangiavacchi/MNIST-ComputeML, on scikit-learn's handwritten digits.

    // Swift, the original's calls                          # Python, mlc_torch/commands/demo.py
    let input = MLCTensor(descriptor:                       self.image = MLCTensor(descriptor=
        MLCTensorDescriptor(shape: [32, 784, 1, 1],             unwrap(MLCTensorDescriptor(shape=[32, 64, 1, 1],
                            dataType: .float32)!)                              dataType=MLCDataType.float32)))
    let weights = MLCTensor(descriptor: d,                  weights = MLCTensor(descriptor=d,
        randomInitializerType: .glorotUniform)                  randomInitializerType=MLCRandomInitializerType.glorotUniform)
    let relu = MLCActivationLayer(descriptor:               relu = MLCActivationLayer(descriptor=
        MLCActivationDescriptor(type: .relu)!)                  unwrap(MLCActivationDescriptor(type=MLCActivationType.relu)))
    training.addInputs(["image": input],                    self.training.addInputs({"image": self.image},
        lossLabels: ["label": labels])                          lossLabels={"label": self.label})
    training.execute(inputsData: ["image": batch],          self.training.execute(inputsData={"image": batch},
        lossLabelsData: ["label": wanted],                      lossLabelsData={"label": wanted},
        lossLabelWeightsData: nil, batchSize: 32,               lossLabelWeightsData=None, batchSize=32,
        options: [.synchronous]) { loss, error, time in ... }   options=[MLCExecutionOptions.synchronous],
                                                                completionHandler=lambda loss, error, seconds: ...)

One thing differs. The original puts a softmax layer before the softmaxCrossEntropy loss, which applies softmax itself;
that flattens the gradient and slows learning. The port trains on what the second dense layer gives, and only the
inference graph ends with a softmax. ``--double-softmax`` trains as the original does; the library warns about it.

The program itself is the ``demo`` command of the package, so that an installation without this folder has it too.
"""

from __future__ import annotations

from mlc_torch.commands.demo import main

if __name__ == "__main__":
    main()
