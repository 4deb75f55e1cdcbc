"""The result of `barycenter`: the space, its value, and how the rounds ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ..geometry.metric import DenseMetric
from ..geometry.space import Space
from ..results.base import ResultBase
from ..results.io import Arrays, from_json_array, json_array, to_array, with_prefix, without_prefix
from ..results.records import History, Status, to_user
from ..results.result import Result


@dataclass(frozen=True, eq=False, repr=False)
class Barycenter(ResultBase):
    """The result of `barycenter`.

    space: the barycenter, with its distances or its points and its weights; share_tensor: (S,), the t_s, of sum 1;
    parts: the batch of results between each of the S spaces and the barycenter; code: how the rounds ended; history:
    one entry per round, NumPy arrays; parameters: rho, eps, solver options, n, dim and shares as a plain dict; a rho or
    eps for each space is a list.

    >>> import numpy as np, ugw
    >>> x = ugw.Space.from_points(np.random.default_rng(0).random((6, 2)))
    >>> b = ugw.barycenter([x, x], n=5, rho=1.0, eps=1e-2)
    >>> b.distances.shape, len(b.parts), b.status.name
    ((5, 5), 2, 'CONVERGED')
    """

    space: Space
    share_tensor: Tensor
    parts: Result
    code: Status
    history: History
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def value(self) -> Any:
        """The objective Σ_s t_s UGW(X_s, barycenter), entropy included, a number or a tensor (); Σ t_s = 1."""
        return self._to_user((self.share_tensor * self.parts.tensors.terms.total).sum())

    @property
    def shares(self) -> Any:
        """The weights t_s of the spaces, (S,), of sum 1: an array or a tensor."""
        return self._to_user(self.share_tensor)

    @property
    def distances(self) -> Any:
        """The distances between the points of the barycenter, (n, n): an array or a tensor."""
        return self._to_user(self.space.metric.dense())

    @property
    def points(self) -> Any:
        """The points of the barycenter, (n, d), an array or a tensor; None for a free distance matrix."""
        points = self.space.point_tensor
        return None if points is None else self._to_user(points)

    def _to_user(self, tensor: Tensor) -> Any:
        """Return a tensor as a number or an array if the spaces were made of NumPy arrays, else as a copied tensor."""
        return to_user(tensor[None], batched=False, numpy=self.space.numpy)

    @property
    def n_iter(self) -> int:
        """The number of rounds; each solves for the plans, then updates the distances of the barycenter."""
        return len(self.history)

    @property
    def status(self) -> Status:
        """CONVERGED if the distances converged over the rounds and all plans in `parts` converged.

        Otherwise the status of the rounds if these did not converge, else that of the first plan that did not.
        """
        parts = [Status(code) for code in self.parts.tensors.status.tolist()]
        failed = [status for status in parts if status != Status.CONVERGED]
        return failed[0] if self.code == Status.CONVERGED and failed else self.code

    @property
    def converged(self) -> bool:
        """Whether the distances converged over the rounds and all plans in `parts` converged."""
        return self.status == Status.CONVERGED

    @property
    def message(self) -> str:
        """How the rounds of distance updates ended, or if they converged the solves in `parts`, and what to change."""
        if self.code == Status.CONVERGED and not self.converged:
            return self.parts.message
        change = f"after {self.n_iter} rounds the distances changed by {self.history.change[-1]:.1e}"
        if self.code == Status.MAX_ITER:
            return f"the limit of rounds came first: raise max_iter or loosen tol of BarycenterMin ({change})"
        return f"{self.code.message} ({change})"

    def rows(self) -> list[tuple[str, str]]:
        """Return (name, text) of the table's lines: sizes, value, first 8 shares (t_s), number of rounds, status."""
        shares = ", ".join(f"{share:.3g}" for share in self.share_tensor.tolist()[:8])
        return [
            ("barycenter", f"of {len(self.parts)} spaces, {self.space.n} points"),
            ("value", f"{float(self.value):.8g}"),
            ("shares", shares),
            ("rounds", str(self.n_iter)),
            ("status", self.message),
        ]

    def to_arrays(self) -> Arrays:
        """Return distances, points if any, weights, shares, status "code", parameters, "history.…", "parts.…"."""
        arrays = {"distances": to_array(self.space.metric.dense()), "weights": to_array(self.space.weight_tensor)}
        if self.space.point_tensor is not None:
            arrays["points"] = to_array(self.space.point_tensor)
        arrays |= {"shares": to_array(self.share_tensor), "code": np.array(int(self.code))}
        arrays |= {"numpy": np.array(self.space.numpy), "parameters": json_array(self.parameters)}
        arrays |= with_prefix("history", vars(self.history))
        return arrays | with_prefix("parts", self.parts.to_arrays())

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Return the `Barycenter` in arrays that `to_arrays` made; an error if some are missing or of a wrong shape."""
        space = Space(
            metric=DenseMetric(torch.from_numpy(arrays["distances"])),
            weight_tensor=torch.from_numpy(arrays["weights"]),
            point_tensor=torch.from_numpy(arrays["points"]) if "points" in arrays else None,
            numpy=bool(arrays["numpy"]),
        )
        parts = Result.from_arrays(without_prefix("parts", arrays))
        history = History(**without_prefix("history", arrays))
        shares, parameters = torch.from_numpy(arrays["shares"]), from_json_array(arrays["parameters"])
        if shares.shape != (len(parts),) or space.metric.shape != (space.n, space.n):
            raise ValueError("arrays of the wrong shape")
        return cls(space, shares, parts, Status(int(arrays["code"])), history, parameters)

    def __repr__(self) -> str:
        """Return one line: the number of spaces and points, the value, the status and the number of rounds."""
        ended = f"{self.status.name.lower().replace('_', ' ')} after {self.n_iter} rounds"
        return f"Barycenter(of {len(self.parts)}, n={self.space.n}, value={float(self.value):.6g}, {ended})"
