"""Pytest plugin that makes packages look uninstalled: `pytest -p tests.hidden_packages --hide triton,plotly`.

`make test-without PACKAGES=triton` runs the suite with a backend switched off; tests that need it skip.
"""

import sys


def pytest_addoption(parser):
    parser.addoption("--hide", metavar="NAMES", default="", help="packages whose import fails, separated by commas")


def pytest_configure(config):
    names = {name for name in config.getoption("hide").split(",") if name}
    if names:
        sys.meta_path.insert(0, Blocker(names))


class Blocker:
    """Finder whose search fails for the given packages, as if they were not installed."""

    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
