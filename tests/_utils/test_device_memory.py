"""Available device memory."""

import torch

from ugw._utils import device_memory


def test_available_memory_is_detected():
    free = device_memory.available_bytes(torch.device("cpu"))
    assert free is None or free > 2**20
    assert device_memory.available_bytes(torch.device("meta")) is None
    assert device_memory.machine_memory() > 2**20
