"""A device whose CUDA graphs are emulated."""

import pytest

from oracles.fake_cuda_graphs import fake_cuda_graphs


@pytest.fixture
def cuda():
    with fake_cuda_graphs() as device:
        yield device
