"""What the type checkers must object to. Each comment is itself checked: an ignore that nothing needs is an error."""

from __future__ import annotations

import mlc_torch as mlc

mlc.MLCTensor(shap=[2, 3])  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
mlc.MLCTensor(shape="2, 3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
mlc.MLCTensorDescriptor(shape=[2]).shape  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
mlc.MLCDataType.float64  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
mlc.MLCLossTypeDebugDescription("huber")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
mlc.MLCTensor(shape=[2]).tensorID = 3  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
mlc.MLCGraph().node(mlc.MLCActivationLayer.relu)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
mlc.MLCActivationLayer.relu(a=1.0)  # type: ignore[operator]  # pyright: ignore[reportCallIssue]
