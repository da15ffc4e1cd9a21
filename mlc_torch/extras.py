"""The packages that parts of the library need beyond torch and NumPy, and the words for one that is missing."""

from __future__ import annotations

EXTRAS: dict[str, tuple[str, ...]] = {
    "checkpoint": ("safetensors",),
    "examples": ("scikit-learn", "tqdm", "matplotlib"),
    "fit": ("tqdm", "matplotlib", "tensorboard"),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "viz": ("grandalf", "resvg_py"),
}
"""As ``pyproject.toml`` lists them; a test holds the two together."""


def install(extra: str) -> str:
    """The command that installs an extra. By the packages' names, it works for an installed library and in a checkout."""
    return f"python -m pip install {' '.join(EXTRAS[extra])}"
