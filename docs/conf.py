"""Sphinx configuration of the documentation site. `make docs` builds it into out/docs without network access."""

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
    "gallery",
    "offline",
]
exclude_patterns = ["gallery/*.ipynb", "gallery/searchindex*"]
templates_path = ["_templates"]
root_doc = "index"
nitpicky = True
default_role = "code"  # `name` in the comments of the examples is code
pygments_dark_style = "github-dark"
# Pages link to repository files, for readers on a Git host. The site replaces each pattern by its own link.
SITE_LINKS = (
    (r"\]\(\.\./benchmarks/results/compare\.md\)", "](compare.md)"),
    (r"\[([^]]*)\]\(\.\./benchmarks/NOTES\.md\)", r"\1 (`benchmarks/NOTES.md`)"),
    (r"\[([^]]*)\]\(\.\./CONTRIBUTING\.md[^)]*\)", r"\1 (`CONTRIBUTING.md`)"),
    (r"\]\(\.\./examples/README\.rst\)", "](gallery/index.rst)"),
    (r"\]\(\.\./examples/(\w+)\.py\)", r"](gallery/\1.rst)"),
    (r"\[([^]]*)\]\(\.\./README\.md[^)]*\)", r"\1"),
)

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
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("ugw",),
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
    "capture_repr": (),
    "write_computation_times": False,
    "reset_modules": ("matplotlib", "gallery.reset"),
    "within_subsection_order": "gallery.Order",
    "minigallery_sort_order": "gallery.place",
    "image_srcset": ["2x"],
    "inspect_global_variables": False,
    "parallel": True,  # uses the number of processes given by sphinx-build -j
}

# -- theme ---------------------------------------------------------------------------------------------------------
html_theme = "furo"
html_title = "ugw"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5c8f", "color-brand-content": "#0b5c8f"},
    "dark_css_variables": {"color-brand-primary": "#6cb8e6", "color-brand-content": "#6cb8e6"},
}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False


def replace_links(app: Sphinx, name: str, text: list[str]) -> None:
    """Replace links to repository files by links to the pages that the site builds from them."""
    for pattern, place in SITE_LINKS:
        text[0] = re.sub(pattern, place, text[0])


def setup(app: Sphinx) -> None:
    """Register `replace_links` for every page that Sphinx reads."""
    app.connect("source-read", replace_links)
