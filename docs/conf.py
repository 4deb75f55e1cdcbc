"""The documentation site: `make docs` builds it, without a network, into out/docs."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from sphinx.application import Sphinx

import ugw

project = "ugw"
author = "The ugw developers"
copyright = f"2026, {author}"
release = version = ugw.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
    "sphinx_copybutton",
    "sphinx_design",
    "equations",
    "docstrings",
    "offline",
]
exclude_patterns = ["gallery/*.ipynb", "gallery/searchindex*"]
templates_path = ["_templates"]
root_doc = "index"
nitpicky = True
ELSEWHERE = re.compile(r"\]\(\.\./benchmarks/results/compare\.md\)")

# -- text ----------------------------------------------------------------------------------------------------------
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3
myst_dmath_double_inline = False
html_math_renderer = "mathml"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

# -- reference -----------------------------------------------------------------------------------------------------
autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}

# -- gallery -------------------------------------------------------------------------------------------------------
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"__init__|single_cell|align|barycentres|debiased_flow|generate",
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("ugw",),
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
    "capture_repr": (),
    "write_computation_times": False,
    "reset_argv": "gallery.arguments",
    "reset_modules": ("matplotlib", "gallery.reset"),
    "within_subsection_order": "gallery.Order",
    "image_srcset": ["2x"],
    "inspect_global_variables": False,
    "parallel": True,  # as many as sphinx-build -j says
}

# -- looks ---------------------------------------------------------------------------------------------------------
html_theme = "furo"
html_title = "ugw"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False


def setup(app: Sphinx) -> None:
    """Files that lie elsewhere for readers on a Git host are pages here."""
    app.connect("source-read", lambda app, name, text: text.__setitem__(0, ELSEWHERE.sub("](compare.md)", text[0])))
