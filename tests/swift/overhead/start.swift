import MLCompute
print(MLCTensor(shape: [2, 3]).descriptor.shape)
