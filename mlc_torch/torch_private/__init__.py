"""Kernels and entry points that torch's documentation does not promise, each with a public way to the same numbers.

``available`` says what is used; setting an entry to False takes the public way, which is how the tests reach it.
"""

from __future__ import annotations

import torch

available: dict[str, bool] = {
    "fused_adam": hasattr(torch, "_fused_adam_") and hasattr(torch, "_fused_adamw_"),
    "fused_sgd": hasattr(torch, "_fused_sgd_"),
    "foreach": hasattr(torch, "_foreach_mul"),
    "engine": hasattr(torch.autograd.Variable, "_execution_engine"),
    "inductor": True,
    "quiet_tracer": True,
    "own_conv": hasattr(torch.ops.aten, "_slow_conv2d_backward"),
    "library_lstm": hasattr(torch, "mkldnn_rnn_layer") and hasattr(torch.ops.aten, "mkldnn_rnn_layer_backward"),
    "cudnn_lstm": hasattr(torch, "_cudnn_rnn") and hasattr(torch.ops.aten, "_cudnn_rnn_backward"),
    "activated_product": hasattr(torch.ops.aten, "_addmm_activation"),
    "packed_lstm": hasattr(torch.ops.mkldnn, "_reorder_mkldnn_rnn_layer_weight"),
    "script": hasattr(torch.jit, "CompilationUnit"),
    "below_autograd": hasattr(torch._C, "_AutoDispatchBelowAutograd"),
    "use_counts": hasattr(torch._C, "_storage_Use_Count") and hasattr(torch.Tensor, "_use_count"),
}
