"""Settings of every test: one torch thread, and in `make test` the same random examples at every run.

`make test-fuzz` runs the tests that draw examples (Hypothesis) with new and many more examples, by the profile "fuzz".
"""

import os

import torch
from hypothesis import settings

torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton's kernels are first imported
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=25)
settings.register_profile("fuzz", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("UGW_HYPOTHESIS_PROFILE", "repeatable"))
