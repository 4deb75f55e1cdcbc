"""What a conic problem's solve found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from .records import Lift
from .result import Result


@dataclass(frozen=True, eq=False, repr=False)
class ConicResult(Result):
    """What `solve_conic` found: `value` is CGW at a feasible lift, so an upper bound up to the kernel's error.

    `plan` is for pictures: its mass m obeys R m² = `terms.apart` − `value`, R = rho1 + rho2. For partial transport it
    says what each pair of points saves, and `relaxed_value` is the lowest bilinear value that any step saw.

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
        """`value` and what the error of the kernel may add to it: certainly not below the infimum."""
        return self._out(self.tensors.terms.total + self._lift.slack)

    @property
    def distance(self) -> Any:
        """The root of the value, of the order that the cone says, 0 where rounding made that negative."""
        return self._out(self._distance)

    @property
    def is_metric(self) -> Any:
        """Is `distance` known to obey the triangle inequality for this cone and rho? A bool, or an array of them."""
        return self._out(self._lift.metric) if self.batched else bool(self._lift.metric[0])

    @property
    def lift(self) -> tuple[Any, Any, Any]:
        """(P, Q, w), (n, m) each: P 1 = a, Qᵀ 1 = b, 0 ≤ w ≤ P^(rho1/R) Q^(rho2/R).

        For partial transport w = min(P, Q), the mass that each pair of points matches.
        """
        return self._out(self._lift.P), self._out(self._lift.Q), self._out(self._lift.w)

    @property
    def potentials(self) -> tuple[Any, Any]:
        """A conic result has none."""
        raise InputError("a conic result has no potentials, at any eps: it has a `lift`, and `atoms`")

    @property
    def kernel_error(self) -> Any:
        """Bound on the error of the kernel exp(−λ/R); 0 where it was summed exactly."""
        return self._out(self._lift.error)

    @property
    def kernel_rank(self) -> Any:
        """Terms of the factorized kernel; 0 where it was summed exactly."""
        return self._out(self._lift.rank) if self.batched else int(self._lift.rank[0])

    def atoms(self) -> dict[str, Any]:
        """The plan between the cones as atoms: point and radius on each side, and mass. Unbatched results only.

        Mass w sits at ([x_i, sqrt(P/w)], [y_j, sqrt(Q/w)]); what is left of P or Q where w = 0 meets the apex,
        whose radius is 0. For partial transport radii are masses: P/w and Q/w.
        """
        self._single()
        P, Q, w = (t[0] for t in (self._lift.P, self._lift.Q, self._lift.w))
        both = w > 0
        mass = torch.where(both, w, torch.maximum(P, Q))
        i, j = torch.nonzero(mass > 0, as_tuple=True)
        radii = ((side[i, j] / mass[i, j]) ** (1.0 / float(self._lift.power[0])) for side in (P, Q))
        columns = (i, j, *radii, mass[i, j])
        names = ("i", "j", "radius_x", "radius_y", "mass")
        return {k: v.cpu().numpy() if self.numpy else v for k, v in zip(names, columns, strict=True)}

    @property
    def message(self) -> str:
        """What happened, with numbers and the cure, also where the factors of the kernel are too coarse."""
        said = super().message
        i = self._coarsest
        if i is None:
            return said
        return (
            f"{said}; {f'item {i}: ' if self.batched else ''}the error of the kernel's factors may be "
            f"{float(self._lift.error[i]):.1e}, above the {float(self._lift.wanted[i]):.1e} that were wanted: compare "
            "value_bound with value, and give the cone a larger max_rank"
        )

    def __repr__(self) -> str:
        said, i = super().__repr__(), self._coarsest
        return said if i is None else f"{said[:-1]}, kernel only to {float(self._lift.error[i]):.0e})"

    @property
    def _coarsest(self) -> int | None:
        """The item whose kernel is furthest above its tolerance, if any is."""
        over = self._lift.error / self._lift.wanted.clamp(min=torch.finfo(torch.float64).tiny)
        return int(over.argmax()) if bool((over > 1.0).any()) else None

    def rows(self) -> list[tuple[str, str]]:
        """Those of a Result, the distance and the kernel."""
        rows = super().rows()
        lift = self._lift
        said = f"{float(self._distance[0]):.8g}"
        rank = int(lift.rank[0])
        kernel = f"rank {rank}, error ≤ {float(lift.error[0]):.1e}" if rank else "exact"
        return [rows[0], ("distance", said if bool(lift.metric[0]) else f"{said} (not a metric)"), *rows[1:-2],
                ("kernel", kernel), *rows[-2:]]  # fmt: skip

    @property
    def _distance(self) -> Tensor:
        return self.tensors.terms.total.clamp(min=0.0) ** (1.0 / self._lift.exponent)

    @property
    def _lift(self) -> Lift:
        if self.tensors.lift is None:
            raise InputError("this is not the result of a conic problem")
        return self.tensors.lift
