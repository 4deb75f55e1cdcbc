"""Settings of every test: one torch thread, and in `make test` the same random examples at every run.

`make test-fuzz` runs the tests that draw examples (Hypothesis) with new and many more examples, by the profile "fuzz".
"""

import os

import pytest
import torch
from _pytest.doctest import DoctestModule
from hypothesis import settings

torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton's kernels are first imported
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=25)
settings.register_profile("fuzz", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("UGW_HYPOTHESIS_PROFILE", "repeatable"))


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Collect no examples from docstrings of tests: only those of src/ugw are run."""
    collectors = yield
    return [each for each in collectors if not isinstance(each, DoctestModule)] if collectors else collectors
