"""What every test relies on: one torch thread, and the same examples every time, whatever the machine's load."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("same", derandomize=True, deadline=None)
settings.load_profile("same")
