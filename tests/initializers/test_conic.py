"""How conic problems are solved: whose options count."""

import ugw
from ugw.initializers.conic import TRANSPORT, tuned


def test_only_options_left_alone_are_tuned():
    given = ugw.AlternateMin(proximal=(0.2, 0.02, 0.9), inner=ugw.Sinkhorn(max_iter=20, tol=1e-6))
    assert tuned(given, TRANSPORT) == given
    assert tuned(ugw.AlternateMin(), TRANSPORT) == TRANSPORT
    inner = tuned(ugw.AlternateMin(inner=ugw.Sinkhorn(tol=1e-6)), TRANSPORT).inner
    assert inner == ugw.Sinkhorn(tol=1e-6, max_iter=TRANSPORT.inner.max_iter)
    many = tuned(ugw.Multistart(n=3), TRANSPORT)
    assert many == ugw.Multistart(n=3, solver=TRANSPORT)
    assert tuned(ugw.AlternateLP(tol=1e-3), ugw.AlternateLP()) == ugw.AlternateLP(tol=1e-3)
