"""Options of the solver in conic problems."""

import ugw
from ugw.initializers.conic import TRANSPORT_SOLVER
from ugw.solvers.proximal import ProximalSchedule


def test_only_options_left_alone_are_tuned():
    default = TRANSPORT_SOLVER.with_defaults()
    solver = ugw.AlternateMin(
        tol=1e-5,
        proximal=ugw.ProximalSchedule(first=0.2, last=0.02, factor=0.9),
        inner=ugw.Sinkhorn(max_iter=20, tol=1e-6),
    )
    assert solver.with_defaults(TRANSPORT_SOLVER) == solver
    assert ugw.AlternateMin().with_defaults(TRANSPORT_SOLVER) == default
    inner = ugw.AlternateMin(inner=ugw.Sinkhorn(tol=1e-6)).with_defaults(TRANSPORT_SOLVER).inner
    assert inner == ugw.Sinkhorn(tol=1e-6, max_iter=TRANSPORT_SOLVER.inner.max_iter)
    many = ugw.Multistart(n=3).with_defaults(TRANSPORT_SOLVER)
    assert many == ugw.Multistart(n=3, solver=default)
    assert ugw.AlternateLP(tol=1e-3).with_defaults(ugw.AlternateLP()) == ugw.AlternateLP(tol=1e-3)


def test_an_explicit_option_that_equals_the_default_of_another_problem_is_kept():
    """solve_conic once replaced the proximal schedule of solve, given explicitly, by its own."""
    explicit = ugw.AlternateMin(
        proximal=ProximalSchedule(first=0.3, last=0.01, factor=0.95), inner=ugw.Sinkhorn(max_iter=50)
    )
    resolved = explicit.with_defaults(TRANSPORT_SOLVER)
    assert resolved.proximal == explicit.proximal
    assert resolved.inner.max_iter == 50
    assert ugw.Multistart(solver=explicit).with_defaults(TRANSPORT_SOLVER).solver == resolved
