"""Results of every kind, one after the other."""

import pytest

from oracles.results import KINDS


@pytest.fixture(scope="module", params=KINDS, ids=KINDS)
def any_result(request):
    return KINDS[request.param]()
