"""What every test relies on: one torch thread, so that times and last digits do not depend on the machine's load."""

import torch

torch.set_num_threads(1)
