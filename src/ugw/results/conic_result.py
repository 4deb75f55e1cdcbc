"""The result of a conic problem: value, distance and the plan between the cones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..errors import InputError
from .records import Lift
from .result import Result


@dataclass(frozen=True, eq=False, repr=False)
class ConicResult(Result):
    """The result of `solve_conic`: `value` is CGW at the feasible `lift`, an upper bound up to the error of the kernel.

    `plan` is a plan for display; its mass m satisfies R m² = `terms.unmatched` − `value`, R = rho1 + rho2. For partial
    transport its entries are the amounts by which each pair of points lowers the value, and `relaxed_value` is the
    lowest bilinear value of any step.

    >>> import numpy as np, ugw
    >>> points = np.random.default_rng(0).random((6, 2))
    >>> x, y = ugw.Space.from_points(points), ugw.Space.from_points(2 * points)
    >>> c = ugw.solve_conic(x, y, rho=1.0)
    >>> abs(c.distance - c.value**0.5) < 1e-12, c.value_bound >= c.value, c.is_metric
    (True, True, True)
    """

    needs_lift = True

    @property
    def value_bound(self) -> Any:
        """An upper bound of CGW, a number or (B,): `value` plus the most that the error of the kernel may add to it."""
        return self._to_user(self.tensors.terms.total + self._lift.value_slack)

    @property
    def distance(self) -> Any:
        """The conic distance max(value, 0)^(1/k), a number or (B,): k = 2 over KL, q for PartialTransport(q)."""
        return self._to_user(self.tensors.terms.total.clamp(min=0.0) ** (1.0 / self._lift.distance_exponent))

    @property
    def is_metric(self) -> Any:
        """Whether `distance` is known to satisfy the triangle inequality for this cone and rho: bool or (B,) bools."""
        return self._to_user(self._lift.is_metric) if self.batched else bool(self._lift.is_metric[0])

    @property
    def lift(self) -> tuple[Any, Any, Any]:
        """The plan between cones (P, Q, w), (n, m) or (B, n, m) each.

        P, Q: the weights a and b divided among pairs ij, P 1 = a and Qᵀ 1 = b; w: mass of the atom that matches P_ij
        with Q_ij, 0 ≤ w ≤ P^(rho1/R) Q^(rho2/R), R = rho1 + rho2. For partial transport w = min(P, Q), the mass that
        each pair of points matches.
        """
        return self._to_user(self._lift.P), self._to_user(self._lift.Q), self._to_user(self._lift.w)

    @property
    def potentials(self) -> tuple[Any, Any]:
        """Raise InputError: conic results have no potentials."""
        raise InputError("a conic result has no potentials, at any eps: it has a `lift`, and `atoms`")

    @property
    def kernel_error(self) -> Any:
        """Bound on the absolute error of exp(−λ/R), λ the loss, R = rho1 + rho2: a number or (B,); 0 if exact."""
        return self._to_user(self._lift.kernel_error)

    @property
    def kernel_rank(self) -> Any:
        """Number of terms of the factorized kernel exp(−λ/R), λ the loss: an int or (B,); 0 where it is exact."""
        return self._to_user(self._lift.kernel_rank) if self.batched else int(self._lift.kernel_rank[0])

    def atoms(self) -> dict[str, Any]:
        """Return the plan between the cones as atoms: arrays (k,) "i", "j", "radius_x", "radius_y" and "mass".

        An atom matches ([x_i, radius_x], [y_j, radius_y]), points of both cones. There is one for each ij with P_ij > 0
        or Q_ij > 0, (P, Q, w) as in `lift`: P and Q are the weights a and b divided among pairs, w is the mass matched.
        Its mass is w_ij, or max(P_ij, Q_ij) where w_ij = 0, and its radii are sqrt(P_ij/mass) and sqrt(Q_ij/mass), for
        partial transport P_ij/mass and Q_ij/mass. Radius 0 is the apex: nothing is matched. Raises InputError for a
        batch.
        """
        self._unbatched_output()
        P, Q, w = (t[0] for t in (self._lift.P, self._lift.Q, self._lift.w))
        both = w > 0
        mass = torch.where(both, w, torch.maximum(P, Q))
        i, j = torch.nonzero(mass > 0, as_tuple=True)
        radii = ((side[i, j] / mass[i, j]) ** (1.0 / float(self._lift.radius_power[0])) for side in (P, Q))
        columns = (i, j, *radii, mass[i, j])
        names = ("i", "j", "radius_x", "radius_y", "mass")
        return {k: v.cpu().numpy() if self.numpy else v for k, v in zip(names, columns, strict=True)}

    @property
    def message(self) -> str:
        """How the solve ended, what to change, and a warning if the factorized kernel is too coarse."""
        text = super().message
        i = self._item_with_coarsest_kernel
        if i is None:
            return text
        where = f"item {i}: " if self.batched else ""
        error, tolerance = float(self._lift.kernel_error[i]), float(self._lift.kernel_tolerance[i])
        return (
            f"{text}; {where}the error of the kernel's factors may be {error:.1e}, above the {tolerance:.1e} that were "
            "asked for: compare value_bound with value, and give the cone a larger max_rank"
        )

    def __repr__(self) -> str:
        """Return one line: size, value, mass and status, and the error of the kernel if it is above its tolerance."""
        text, i = super().__repr__(), self._item_with_coarsest_kernel
        return text if i is None else f"{text[:-1]}, kernel only to {float(self._lift.kernel_error[i]):.0e})"

    @property
    def _item_with_coarsest_kernel(self) -> int | None:
        """Index of the item whose kernel error exceeds its tolerance by the largest factor; None if none exceeds it."""
        over = self._lift.kernel_error / self._lift.kernel_tolerance.clamp(min=torch.finfo(torch.float64).tiny)
        return int(over.argmax()) if bool((over > 1.0).any()) else None

    def rows(self) -> list[tuple[str, str]]:
        """Return (name, text) of each line of `summary`: those of a Result, and for one problem distance and kernel."""
        rows = super().rows()
        if self.batched:
            return rows
        distance = f"{self.distance:.8g}" + ("" if self.is_metric else " (not a metric)")
        kernel = f"rank {self.kernel_rank}, error ≤ {self.kernel_error:.1e}" if self.kernel_rank else "exact"
        gap = [name for name, _ in rows].index("gap")
        return [rows[0], ("distance", distance), *rows[1:gap], ("kernel", kernel), *rows[gap:]]

    @property
    def _lift(self) -> Lift:
        """The `Lift`: plan between cones (P, Q, w), kernel error and rank; InputError if there is no lift."""
        if self.tensors.lift is None:
            raise InputError("this is not the result of a conic problem")
        return self.tensors.lift
