"""What every test relies on: one torch thread, and the same examples every time, whatever the machine's load."""

import os

import torch
from hypothesis import settings

torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton's kernels are first imported
settings.register_profile("same", derandomize=True, deadline=None)
settings.load_profile("same")
