"""Frank–Wolfe with exact linear programs: eps = 0 with both marginals hard."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class FrankWolfe:
    tol: float = 1e-9
    max_iter: int = 100

    def polish(self, problem, result):
        return result
