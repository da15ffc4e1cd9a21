"""How Sphinx builds these pages: ``sphinx-build -W --keep-going -b html docs out/docs``."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
sys.path.append(str(HERE.parent))  # a checkout serves where the package is not installed

import mlc_torch  # noqa: E402

project = "mlc_torch"
author = "mlc_torch contributors"
copyright = author
release = version = mlc_torch.__version__

extensions = ["myst_parser", "sphinx_copybutton", "sphinx_design", "generated", "mathml"]
html_math_renderer = "mathml"
source_suffix = {".md": "markdown"}
# benchmark.md is a part of performance.md, not a page.
exclude_patterns = ["_build", "benchmark.md"]
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"mlc_torch {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_copy_source = False
