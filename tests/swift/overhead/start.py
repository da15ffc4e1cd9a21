from mlc_torch import *

print(MLCTensor(shape=[2, 3]).descriptor.shape)
