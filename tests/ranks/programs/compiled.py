"""TorchInductor's code on two processes: gradients are sent behind the backward pass."""

from __future__ import annotations

import nets
import numpy as np
from checking import check, run_all
from comparing import assert_alike, both, compare, flat

COMPILED = {"use_inductor": True}


@check
def perceptron():
    many = compare(lambda d: nets.perceptron(d, compile_=COMPILED), (0, 5))
    assert many.training.summary().gear == "compiled"


@check
def batch_norm():
    def make(device):
        net = nets.Net(6)
        net.classes(4)
        x = net.pool(net.relu(nets.batch_norm(net, net.convolution(net.input(2, 8, 8), 2, 4))))
        net.dense(net.dropout(net.reshape(x, 6, 64)), 64, 4)
        return net.compile(device, nets.loss(), nets.sgd(), **COMPILED)

    one, many, batches, _ = both(make)
    assert one.step(batches[0])[0] and many.step(batches[0])[0]
    assert many.training.summary().gear == "compiled"
    np.testing.assert_allclose(flat(many.statistics_now()), flat(one.statistics_now()), rtol=1e-5, atol=1e-6)
    assert_alike(many)


run_all()
