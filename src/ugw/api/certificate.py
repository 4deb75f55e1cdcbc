"""`tightness`: CGW and UGW of the same spaces, their ratio, and a certificate that CGW ≤ UGW."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from ..errors import InputError
from ..geometry.space import Space
from ..measures.cones import Cone, GaussianHellinger, PartialTransport
from ..problems.build import check_finite_rho, max_distance_difference, parse_cone, relative
from ..problems.distortion.base import PairLoss
from ..results.base import BatchedResultBase
from ..results.conic_result import ConicResult
from ..results.io import Arrays, with_prefix, without_prefix
from ..results.records import to_user
from ..results.result import Result
from .config import API_CONFIG
from .conic import solve_conic
from .objective import objective
from .solve import solve

_DEFAULT_EPS = relative(API_CONFIG.tightness_eps_share)


@dataclass(frozen=True, eq=False, repr=False)
class Tightness(BatchedResultBase):
    """CGW and UGW of two spaces: their values without entropy, and the results from which they come.

    conic: the result of CGW; unbalanced: the result of UGW; ugw: the UGW objective of its plan without entropy.

    >>> import numpy as np, tempfile, ugw
    >>> points = np.random.default_rng(0).random((6, 2))
    >>> t = ugw.tightness(ugw.Space.from_points(points), ugw.Space.from_points(2.0 * points))
    >>> t.cgw <= t.ugw, t.converged
    (True, True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     t.save(f"{folder}/t.npz")
    ...     ugw.Tightness.load(f"{folder}/t.npz").ratio == t.ratio
    True
    """

    conic: ConicResult
    unbalanced: Result
    ugw: Any

    @property
    def batched(self) -> bool:
        """Whether the result holds a batch, also of one item: values then have shape (B,), and `t[i]` is item i."""
        return self.conic.batched

    @property
    def _n_items(self) -> int:
        """The number of items of the batch; 1 for two single spaces."""
        return len(self.conic.tensors.status)

    def _item(self, index: int) -> Self:
        """Return item `index` of a batch as a single result, without padding."""
        value = _as_tensor(self.ugw)[index : index + 1]
        return type(self)(
            self.conic[index], self.unbalanced[index], to_user(value, batched=False, numpy=self.conic.numpy)
        )

    @property
    def cgw(self) -> Any:
        """The CGW value without entropy that the solver found, `conic.value`: a number, or an array or tensor (B,)."""
        return self.conic.value

    @property
    def ratio(self) -> Any:
        """CGW / UGW, `cgw` / `ugw` with a negative CGW counted as 0: a number or (B,), from 0 to 1.

        1 where both are 0 up to rounding, as for isometric spaces.
        """
        cgw, ugw = _as_tensor(self.cgw).clamp(min=0.0), _as_tensor(self.ugw)
        smallest = max(API_CONFIG.min_relative_value, self._rounding) * _as_tensor(self.conic.terms.unmatched)
        are_zero = torch.maximum(cgw, ugw.abs()) <= smallest
        ratio = torch.where(are_zero, 1.0, cgw / torch.where(are_zero, 1.0, ugw))
        return to_user(ratio.reshape(-1), batched=self.batched, numpy=self.conic.numpy)

    @property
    def holds(self) -> bool:
        """Whether `conic.value_bound`, CGW plus the error bound of its kernel, is ≤ `ugw` up to rounding for all items.

        One bool, also for a batch.
        """
        bound, ugw = _as_tensor(self.conic.value_bound), _as_tensor(self.ugw)
        return bool((bound <= ugw + self._rounding * _as_tensor(self.conic.terms.unmatched)).all())

    @property
    def converged(self) -> Any:
        """Whether both solves converged: a bool, or an array or tensor (B,) of bools."""
        both = torch.as_tensor(self.conic.converged) & torch.as_tensor(self.unbalanced.converged)
        if not both.ndim:
            return bool(both)
        return both.cpu().numpy() if self.conic.numpy else both

    @property
    def message(self) -> str:
        """How the solve of CGW ended if it did not converge, otherwise how that of UGW ended, and what to change."""
        if not self.conic.all_converged:
            return f"CGW: {self.conic.message}"
        return f"UGW: {self.unbalanced.message}"

    @property
    def parameters(self) -> dict[str, Any]:
        """The dict {"conic": parameters of the CGW result, "unbalanced": parameters of the UGW result}."""
        return {"conic": self.conic.parameters, "unbalanced": self.unbalanced.parameters}

    @property
    def _rounding(self) -> float:
        """Bound on the rounding errors of CGW and UGW, 100 machine epsilons, relative to CGW if no mass is matched."""
        return API_CONFIG.rounding_units * torch.finfo(self.conic.tensors.plan.dtype).eps

    def rows(self) -> list[tuple[str, str]]:
        """Return (name, text) of the table's lines: CGW, UGW, ratio, verdict, status; of a batch ratios and status."""
        if self.batched:
            ratios = [f"{float(ratio):.6f}" for ratio in self.ratio]
            return [*((f"[{i}]", f"CGW / UGW {ratio}") for i, ratio in enumerate(ratios)), ("status", self.message)]
        values = [("CGW", f"{float(self.cgw):.8g}"), ("UGW", f"{float(self.ugw):.8g}")]
        ratio = ("CGW / UGW", f"{float(self.ratio):.6f}")
        verdict = "certified" if self.holds else "NOT certified: try another eps, or a cone with a larger max_rank"
        return [*values, ratio, ("CGW ≤ UGW", verdict), ("status", self.message)]

    def to_arrays(self) -> Arrays:
        """Return arrays by name, as `save` writes them: "ugw", and "conic.…", "unbalanced.…" of the two results."""
        arrays = {"ugw": _as_tensor(self.ugw).detach().cpu().numpy()}
        return (
            arrays
            | with_prefix("conic", self.conic.to_arrays())
            | with_prefix("unbalanced", self.unbalanced.to_arrays())
        )

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Return the `Tightness` from the arrays of `to_arrays`; raise if they are missing or do not fit together."""
        conic = ConicResult.from_arrays(without_prefix("conic", arrays))
        unbalanced = Result.from_arrays(without_prefix("unbalanced", arrays))
        value = torch.from_numpy(arrays["ugw"]).reshape(-1)
        if len(value) != len(conic.tensors.status):
            raise ValueError("arrays of the wrong shape")
        return cls(conic, unbalanced, to_user(value, batched=conic.batched, numpy=conic.numpy))

    def __repr__(self) -> str:
        """Return the text of CGW, UGW, their ratio and whether CGW ≤ UGW is certified; for a batch one line."""
        if self.batched:
            ratios = torch.as_tensor(self.ratio)
            return (
                f"Tightness(batch of {len(self)}, CGW/UGW from {float(ratios.min()):.4f} to "
                f"{float(ratios.max()):.4f}, {'certified' if self.holds else 'NOT certified'})"
            )
        return "\n".join(f"{name:<10} {text}" for name, text in self.rows()[:-1])


def tightness(
    x: Space, y: Space, *, rho: Any = 1.0, cone: Any = "gaussian-hellinger", eps: Any = _DEFAULT_EPS
) -> Tightness:
    """Return a `Tightness`: CGW and UGW of two spaces or batches, their ratio CGW / UGW, and whether CGW ≤ UGW.

    rho: finite; cone: as for `ugw.solve_conic`, over KL; its λ is the loss of UGW too. eps: that of UGW, as for
    `ugw.solve`, by default `relative(1e-3)`, smaller than the 1e-2 of `ugw.solve`: its plan is valued without entropy,
    and a plan blurred by entropy has a higher value. Each is solved from its own starts and from the plan of the other,
    so CGW is never above UGW. If λ is infinite for some pairs, UGW is solved only from the conic plan restricted to
    entries whose mutual λ is finite.

    >>> import numpy as np, ugw
    >>> rng = np.random.default_rng(0)
    >>> x, y = ugw.Space.from_points(rng.random((6, 2))), ugw.Space.from_points(rng.random((7, 2)))
    >>> t = ugw.tightness(x, y, rho=0.5)
    >>> t.holds, bool(0.5 < t.ratio <= 1.0)
    (True, True)
    """
    parsed_cone = parse_cone(x, y, cone)
    check_finite_rho(rho)
    if isinstance(parsed_cone, PartialTransport):
        raise InputError(
            "tightness compares with UGW, which is over KL: cone must be one over KL, got PartialTransport"
        )
    loss = None if isinstance(parsed_cone, GaussianHellinger) else parsed_cone
    conic = solve_conic(x, y, rho=rho, cone=parsed_cone)
    is_finite = PairLoss(parsed_cone).is_finite_up_to(max_distance_difference(x, y))
    start = conic.plan if is_finite else _restrict_to_finite_loss(conic, x, y, parsed_cone)
    unbalanced = solve(x, y, rho=rho, eps=eps, loss=loss, init=start)
    if is_finite:
        unbalanced = solve(x, y, rho=rho, eps=eps, loss=loss).better(unbalanced)
    value = objective(unbalanced.plan, x, y, rho=rho, loss=loss).total
    conic = conic.better(solve_conic(x, y, rho=rho, cone=parsed_cone, init=unbalanced))
    return Tightness(conic, unbalanced, value)


def _as_tensor(value: Any) -> Tensor:
    """Return a number, array or tensor as a tensor: a number in float64, others in their dtype."""
    return torch.as_tensor(value, dtype=torch.float64 if isinstance(value, float) else None)


def _restrict_to_finite_loss(conic: ConicResult, x: Space, y: Space, loss: Cone) -> Tensor:
    """Return `conic.plan` with entries set to 0 until the loss λ(|Dx_ii' − Dy_jj'|) is finite for all ij, i'j' left.

    Entries are kept greedily, from the largest on. Shape (n, m), or (B, n, m) for a batch. Raises InputError if an item
    keeps no entry.
    """
    restricted = []
    for i, plan in enumerate(conic.tensors.plan):
        dx, dy = (space.metric.item(i, space.n).dense() for space in (x, y))
        is_allowed = torch.isfinite(loss((dx.diagonal()[:, None] - dy.diagonal()).abs()))
        candidates, selected = torch.where(is_allowed, plan, 0.0), torch.zeros_like(plan)
        while bool((candidates > 0).any()):
            k, o = divmod(int(candidates.argmax()), y.n)
            selected[k, o] = plan[k, o]
            candidates[k, o] = 0.0
            candidates = torch.where(torch.isfinite(loss((dx[k][:, None] - dy[o]).abs())), candidates, 0.0)
        if not bool(selected.any()):
            raise InputError(
                "cone must have a finite λ at some pair of points, else UGW has no plan: "
                "got distances that all differ by more than its cutoff"
            )
        restricted.append(selected)
    return torch.stack(restricted) if conic.batched else restricted[0]
