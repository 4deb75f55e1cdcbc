"""Performance targets: patterns of rows, the measured quantity and its bound."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

# Names of measured quantities in the table; others have their own name.
LABELS = {"worse": "relative difference"}


@dataclass(frozen=True)
class Target:
    """rows: a pattern of row names; quantity: of their measured numbers; `mean`: of all rows, not of each."""

    work: str
    rows: str
    quantity: str
    bound: float
    at_most: bool = False
    mean: bool = False

    @property
    def text(self):
        unit = {"seconds": " s", "MiB": " MiB", "Tpairs/s": " Tpairs/s"}.get(self.quantity, "")
        factor = "×" if self.quantity.startswith("ratio") else ""
        sign, label = "≤" if self.at_most else "≥", LABELS.get(self.quantity, self.quantity)
        return f"{label}: {sign} {self.bound:g}{factor}{unit}"

    def check(self, rows):
        """Return (row name, number or None, is met or None if not measured) per matching row, or one for their mean."""
        selected = {name: row for name, row in rows.items() if fnmatchcase(name, self.rows)}
        if not selected:
            return [(self.rows, None, None)]
        numbers = {name: row.get("measured", {}).get(self.quantity) for name, row in selected.items()}
        if self.mean:
            known = [v for v in numbers.values() if v is not None]
            numbers = {f"mean of {len(known)} rows": sum(known) / len(known) if known else None}
            return [(name, v, None if v is None else self.is_met(v)) for name, v in numbers.items()]
        # A measured quantity that is None: the objective was never reached.
        return [
            (name, v, self.is_met(v) if v is not None else (False if self.is_measured(selected[name]) else None))
            for name, v in numbers.items()
        ]

    def is_measured(self, row):
        return self.quantity in row.get("measured", {})

    def is_met(self, number):
        return number <= self.bound if self.at_most else number >= self.bound


def cpu(n, eps, ratio):
    return Target(
        f"CPU, n = {n}, eps = {eps:g}: against the fastest library", f"cpu dense n={n} * eps={eps:g}", "ratio", ratio
    )


TARGETS = [
    *(cpu(500, eps, 2.0) for eps in (0.01, 0.001)),
    *(cpu(n, eps, 5.0) for n in (1000, 2000) for eps in (0.01, 0.001)),
    *(cpu(n, 0.1, 1.5) for n in (500, 1000, 2000)),
    Target("CPU: final objective against the best library", "cpu dense *", "worse", 1e-4, at_most=True),
    Target("CPU: final objective against the best, mean", "cpu dense *", "worse", 0.0, at_most=True, mean=True),
    Target("CPU, 40 problems of n = 100", "cpu pu batch", "ratio to unbalancedgw (batch)", 20.0),
    Target("CPU, 40 problems of n = 100", "cpu pu batch", "ratio to POT (one by one)", 4.0),
    Target("CPU, squared Euclidean, two threads", "cpu streaming n=20000", "seconds", 300.0, at_most=True),
    Target("CPU, squared Euclidean, two threads", "cpu streaming n=20000", "MiB", 1024.0, at_most=True),
    *(
        Target("H200 dense, rho 1, eps .01", f"cuda dense n={n}", "seconds", bound, at_most=True)
        for n, bound in ((1000, 0.1), (10_000, 0.8), (20_000, 5.0))
    ),
    Target("H200 streaming kernel, rank 4", "cuda kernel n=*", "Tpairs/s", 3.0),
    *(
        Target("H200 streaming UGW in R³, 10 % outliers", f"cuda streaming n={n}", quantity, bound, at_most=True)
        for n, seconds, mib in ((100_000, 1.5, 0.2 * 1024), (1_000_000, 45.0, 1024.0))
        for quantity, bound in (("seconds", seconds), ("MiB", mib), ("relative error", 1e-5))
    ),
    Target("H200 streaming UGW in R³, one step", "cuda streaming n=10000000", "seconds", 480.0, at_most=True),
    Target("H200, 1440 problems of n = 100, one call", "cuda pu grid", "seconds", 2.0, at_most=True),
]

# Exponents of time against n that the work itself has.
GROWTH = {"cpu dense": 3.0, "cuda dense": 3.0, "cpu streaming": 2.0, "cuda streaming": 2.0}
