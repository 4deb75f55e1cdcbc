"""One adapter per package, with settings that solve our objective where the package can.

`run(instance, watch, limit)` solves and returns the plan. A package with a hook in its loop calls `watch(plan)` for the
plan of every step; the others have `limits`, numbers of iterations with which they are run one after the other.
"""

import contextlib
import importlib
import importlib.metadata
import math
from dataclasses import dataclass, field
from unittest import mock

import numpy as np
import torch

STEPS = 3000  # of any loop, outer and inner


@dataclass(frozen=True)
class Peer:
    """Solver of a package. `same`: whether its objective is ours, so that its time counts for the ratio."""

    name: str
    package: str  # on PyPI
    module: str
    same: bool = True
    limits: tuple = ()
    note: str = ""
    settings: dict = field(default_factory=dict)

    def version(self):
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return None

    def missing(self):
        """Return the reason why it cannot run here, or None."""
        try:
            importlib.import_module(self.module)
        except Exception as error:  # a broken installation must not end the run
            return f"not installed ({type(error).__name__}: {str(error)[:80]})"
        return None


def watch_argument(module, name, position, watch, transform=lambda plan: plan):
    """Within this context `module.name` passes one of its arguments to `watch` before it runs."""
    inner = getattr(module, name)

    def call_watched(*args, **kwargs):
        watch(transform(args[position] if isinstance(position, int) else kwargs[position]))
        return inner(*args, **kwargs)

    return mock.patch.object(module, name, call_watched)


class Reference(Peer):
    """unbalancedgw, the code of the paper. settings: `domain` "log" or "exp", and its tol_plan."""

    def run(self, instance, watch, limit=STEPS, device="cpu", dtype=torch.float64):
        solver = importlib.import_module("unbalancedgw.vanilla_ugw_solver")
        solve = getattr(solver, self.settings["domain"] + "_ugw_sinkhorn")
        with watch_argument(solver, "compute_local_cost", 0, watch):
            return solve(
                *instance.tensors(device, dtype), eps=instance.eps, rho=instance.rho, rho2=instance.rho,
                nits_plan=limit, tol_plan=self.settings["tol"], nits_sinkhorn=STEPS, tol_sinkhorn=1e-6,
            )  # fmt: skip

    def run_batch(self, instances, watch, device="cpu", dtype=torch.float64):
        """Solve all problems as one batch. Returns plans (B, n, m)."""
        solver = importlib.import_module("unbalancedgw.batch_stable_ugw_solver")
        stacked = [torch.stack(v) for v in zip(*(i.tensors(device, dtype) for i in instances), strict=True)]
        eps, rho = instances[0].eps, instances[0].rho
        with watch_argument(solver, "compute_local_cost", 0, watch):
            return solver.log_batch_ugw_sinkhorn(
                *stacked, eps=eps, rho=rho, rho2=rho, nits_plan=STEPS, tol_plan=1e-5,
                nits_sinkhorn=STEPS, tol_sinkhorn=1e-6,
            )  # fmt: skip


class Pot(Peer):
    """POT's fused unbalanced GW, with arrays of NumPy or of torch (settings: `torch`)."""

    def run(self, instance, watch, limit=STEPS, device="cpu", dtype=torch.float64):
        ot, inside = importlib.import_module("ot"), importlib.import_module("ot.gromov._unbalanced")
        a, dx, b, dy = (instance.a, instance.dx, instance.b, instance.dy)
        start = instance.start
        if self.settings.get("torch"):
            a, dx, b, dy = instance.tensors(device, dtype)
            start = torch.as_tensor(start, dtype=dtype, device=device)
        with watch_argument(inside, "uot_cost_matrix", "pi", watch):
            return ot.gromov.fused_unbalanced_gromov_wasserstein(
                dx, dy, a, b, reg_marginals=instance.rho, epsilon=instance.eps, divergence="kl",
                unbalanced_solver="sinkhorn_log", alpha=0, M=None, init_pi=start,
                max_iter=limit, tol=1e-6, max_iter_ot=STEPS, tol_ot=1e-6 / instance.eps,
            )[0]  # fmt: skip


def no_bar(**_):
    return contextlib.nullcontext(mock.MagicMock())


class Fugw(Peer):
    """fugw's dense solver, without its progress bar, which costs time."""

    def run(self, instance, watch, limit=STEPS, device="cpu", dtype=torch.float64):
        from fugw.solvers import utils
        from fugw.solvers.dense import FUGWSolver

        class Watched(FUGWSolver):
            def local_biconvex_cost(self, pi, *args, **kwargs):
                watch(pi)
                return super().local_biconvex_cost(pi, *args, **kwargs)

        a, dx, b, dy = instance.tensors(device, dtype)
        eps = instance.eps
        solver = Watched(nits_bcd=limit, nits_uot=STEPS, tol_bcd=1e-6, tol_uot=1e-6 / eps, eval_uot=10)
        with mock.patch.object(utils, "_get_progress", no_bar):
            solution = solver.solve(
                alpha=1, rho_s=torch.tensor(instance.rho), rho_t=torch.tensor(instance.rho), eps=eps,
                reg_mode="joint", divergence="kl", F=None, Ds=dx, Dt=dy, ws=a, wt=b, solver="sinkhorn",
                init_plan=torch.as_tensor(instance.start, dtype=dtype, device=device), verbose=False,
            )  # fmt: skip
        return solution["pi"]


class Ott(Peer):
    """OTT-JAX. Its entropy is relative to the counting measure; settings["corrected"] adapts the weights."""

    def run(self, instance, watch, limit=200, device="cpu", dtype=torch.float64):
        return self.prepare(instance, limit)()

    def prepare(self, instance, limit):
        """Return the compiled solver, so that compilation is not timed."""
        import jax

        jax.config.update("jax_enable_x64", True)  # noqa: FBT003
        import jax.numpy as jnp
        from ott.geometry import geometry
        from ott.problems.quadratic import quadratic_problem
        from ott.solvers.linear import sinkhorn
        from ott.solvers.quadratic import gromov_wasserstein

        rho, eps = instance.rho, instance.eps
        power = 1.0 + eps / rho if self.settings.get("corrected") else 1.0
        tau = rho / (rho + eps)

        @jax.jit
        def solve(dx, dy, a, b):
            problem = quadratic_problem.QuadraticProblem(
                geometry.Geometry(cost_matrix=dx), geometry.Geometry(cost_matrix=dy), a=a, b=b, tau_a=tau, tau_b=tau
            )
            inner = sinkhorn.Sinkhorn(threshold=1e-5, max_iterations=STEPS, recenter_potentials=True)
            outer = gromov_wasserstein.GromovWasserstein(
                inner, epsilon=eps, max_iterations=limit, threshold=1e-8, warm_start=True
            )
            return outer(problem).matrix

        arrays = [jnp.asarray(v) for v in (instance.dx, instance.dy, instance.a**power, instance.b**power)]
        compiled = solve.lower(*arrays).compile()
        return lambda: np.array(compiled(*arrays).block_until_ready())


class TorchGW(Peer):
    """torchgw. Its rho only damps the inner loop, and it samples pairs: a different problem."""

    def run(self, instance, watch, limit=500, device="cpu", dtype=torch.float64):
        from torchgw import sampled_gw

        a, dx, b, dy = instance.tensors(device, dtype)
        torch.manual_seed(0)
        np.random.seed(0)
        return sampled_gw(
            p=a, q=b, distance_mode="precomputed", dist_source=dx, dist_target=dy, epsilon=instance.eps,
            semi_relaxed=True, rho=instance.rho, M=50, max_iter=limit, device=torch.device(device),
        )  # fmt: skip


REFERENCE = Reference("unbalancedgw (log)", "unbalancedgw", "unbalancedgw", settings={"domain": "log", "tol": 1e-5})
REFERENCE_EXP = Reference("unbalancedgw (exp)", "unbalancedgw", "unbalancedgw", settings={"domain": "exp", "tol": 1e-9})
POT = Pot("POT", "POT", "ot")
POT_TORCH = Pot("POT (torch)", "POT", "ot", settings={"torch": True})
FUGW = Fugw("fugw", "fugw", "fugw.solvers.dense")
DOUBLING = tuple(math.ceil(200 / 2**k) for k in range(5, -1, -1))
OTT = Ott("OTT-JAX", "ott-jax", "ott", same=False, limits=DOUBLING, note="entropy against the counting measure")
OTT_CORRECTED = Ott(
    "OTT-JAX (corrected weights)", "ott-jax", "ott", same=False, limits=DOUBLING, settings={"corrected": True},
    note="a^(1+eps/rho) for a, to compensate for its entropy",
)  # fmt: skip
TORCHGW = TorchGW(
    "torchgw", "torchgw", "torchgw", same=False, limits=(63, 125, 250, 500), note="rho damps the inner loop only"
)

FASTEST = (REFERENCE, REFERENCE_EXP, POT, POT_TORCH, FUGW)
ALL = (REFERENCE, REFERENCE_EXP, POT, POT_TORCH, FUGW, OTT, OTT_CORRECTED, TORCHGW)
ON_CUDA = (REFERENCE, POT_TORCH, FUGW)
