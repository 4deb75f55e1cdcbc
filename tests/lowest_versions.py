"""Prints the lowest versions that pyproject.toml allows as constraints for pip: `python -m tests.lowest_versions`.

`make test-lowest` installs them. They are the lower bounds of the dependencies and of the packages that run the tests.
"""

import re
import tomllib
from pathlib import Path

TEST_PACKAGES = ("pytest", "pytest-xdist", "hypothesis")


def lowest_versions(project):
    """Return constraints `name==version` from the table [project] of pyproject.toml."""
    bounds = [re.match(r"([\w-]+)>=([\w.]+)", text) for text in project["dependencies"]]
    tools = [re.match(r"([\w-]+)>=([\w.]+)", text) for text in project["optional-dependencies"]["dev"]]
    return [f"{bound[1]}=={bound[2]}" for bound in [*bounds, *(tool for tool in tools if tool[1] in TEST_PACKAGES)]]


if __name__ == "__main__":
    path = Path(__file__).resolve().parents[1] / "pyproject.toml"
    print(*lowest_versions(tomllib.loads(path.read_text(encoding="utf-8"))["project"]), sep="\n")  # noqa: T201
