"""How Sphinx builds these pages: ``sphinx-build -W --keep-going -b html docs out/docs``."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
sys.path.append(str(HERE.parent))  # a checkout serves where the package is not installed

project = "mlc_torch"
author = "mlc_torch contributors"
copyright = author
release = version = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

extensions = ["myst_parser", "sphinx.ext.mathjax", "sphinx_copybutton", "generated"]
source_suffix = {".md": "markdown"}
# benchmark.md is a part of performance.md, not a page.
exclude_patterns = ["_build", "benchmark.md"]
nitpicky = True

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"mlc_torch {release}"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_copy_source = False
