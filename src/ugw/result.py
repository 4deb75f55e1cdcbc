"""What a solve found, and whether to believe it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from html import escape
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ._atomic import all_or_nothing
from ._batch import clone, put_, take, take_fields
from ._check import as_tensor, check_finite
from .errors import InputError, NotConverged


class Status(IntEnum):
    """How a solve ended. Each member's `message` says what happened and what to do."""

    RUNNING = 0
    CONVERGED = 1
    MAX_ITER = 2
    ALTERNATING = 3
    PRECISION = 4
    COLLAPSED = 5
    STOPPED = 6
    NON_FINITE = 7

    @property
    def message(self) -> str:
        """One sentence with the cure."""
        return _MESSAGES[self]

    def __str__(self) -> str:
        return self.name


_MESSAGES = {
    Status.RUNNING: "the solve has not ended",
    Status.CONVERGED: "converged",
    Status.MAX_ITER: "the iteration limit came first: raise max_iter or eps, loosen tol, or set anneal; "
    "if it is the inner residual that is large, raise inner=Sinkhorn(max_iter=...)",
    Status.ALTERNATING: "two plans alternate without meeting; `plan` is the better of them, `plan_pair` has both: "
    "raise eps or try another init",
    Status.PRECISION: "eps is too small against the cost for this dtype, rounding alone moves the plan: "
    "use float64 or raise eps",
    Status.COLLAPSED: "the best plan has next to no mass: rho is too small against the distances; "
    "raise rho, or rescale with Space.scaled()",
    Status.STOPPED: "the callback stopped the run: solve again with init=result.plan to go on",
    Status.NON_FINITE: "a step gave non-finite numbers and was undone: raise eps, use float64 or rescale the spaces",
}


def present(value: Tensor, *, batched: bool, numpy: bool) -> Any:
    """A tensor (B, ...) as users see it: without the batch dimension they did not ask for, NumPy if they use that."""
    if not batched:
        value = value[0]
    if not numpy:
        return value.clone()
    array = value.cpu().numpy().copy()  # what a user writes into it does not change the result
    return array if array.ndim else array.item()


class Sum:
    """Named weighted terms that add up to an objective, (B,) tensors or numbers: the fields of a dataclass."""

    @property
    def total(self) -> Any:
        """Their sum, the objective."""
        return sum(self.as_dict().values())

    def take(self, index: Tensor) -> Self:
        """Some items of the batch."""
        return take_fields(self, index)

    def present(self, *, batched: bool, numpy: bool) -> Self:
        """As users see them: plain numbers or arrays."""
        return type(self)(**{k: present(v, batched=batched, numpy=numpy) for k, v in self.as_dict().items()})

    def as_dict(self) -> dict[str, Any]:
        """Name → value, in the order in which they are printed."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Terms(Sum):
    """The weighted terms of the UGW objective; a hard marginal contributes 0."""

    distortion: Any
    linear: Any
    marginal_a: Any
    marginal_b: Any
    entropy: Any


@dataclass(frozen=True, eq=False)
class ConicTerms(Sum):
    """The terms of CGW: `apart`, its value if nothing is matched, and what matching saves, `overlap` ≤ 0."""

    apart: Any
    overlap: Any


@dataclass(frozen=True, eq=False)
class History:
    """One entry per outer step: F(p, p), F(p, q) with the plan before, plan change, inner residual, mass of p."""

    objective: np.ndarray
    relaxed: np.ndarray
    change: np.ndarray
    residual: np.ndarray
    mass: np.ndarray

    def __len__(self) -> int:
        return len(self.objective)


@dataclass(frozen=True, eq=False)
class Lift:
    """A plan between cones: P 1 = a, Qᵀ 1 = b, 0 ≤ w ≤ sqrt(P∘Q), (B, n, m) each, and (B,) what is known of it.

    error: bound on the error of the kernel; slack: what it may add to the value; rank: of the kernel, 0 if exact;
    metric: is `distance` one? exponent: it is the value to the power of 1 over this; power: masses are radii to this.
    """

    P: Tensor
    Q: Tensor
    w: Tensor
    error: Tensor
    slack: Tensor
    rank: Tensor
    metric: Tensor
    exponent: Tensor
    power: Tensor

    def take(self, index: Tensor) -> Lift:
        """Some items of the batch."""
        return take_fields(self, index)


@dataclass(frozen=True, eq=False)
class Tensors:
    """The numbers behind a Result, each with a leading batch dimension B, on the device of the solve.

    plan, other: (B, n, m), the last two plans; potentials f (B, n), g (B, m) or None; scalars (B,);
    trace: (B, steps, 5), the columns of History, NaN after an item ended; lift: for conic problems.
    """

    plan: Tensor
    other: Tensor
    potentials: tuple[Tensor, Tensor] | None
    terms: Sum
    relaxed_value: Tensor
    marginal_error: Tensor
    change: Tensor
    residual: Tensor
    status: Tensor
    n_iter: Tensor
    trace: Tensor
    lift: Lift | None = None

    def take(self, index: Tensor) -> Tensors:
        """Some items of the batch."""
        return take_fields(self, index)


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A plan, its value, and the truth about both.

    NumPy arrays if the spaces were made of them, else tensors; scalars where the spaces had no batch.
    `sizes` are the true (n, m) of the items of a batch, or None; `r[i]` is item i without its padding.
    """

    tensors: Tensors
    sizes: tuple[tuple[int, int], ...] | None
    numpy: bool

    # -- numbers -------------------------------------------------------------------------------------------

    @property
    def plan(self) -> Any:
        """(n, m), or (B, n, m) with zeros for padding."""
        return self._out(self.tensors.plan)

    @property
    def plan_pair(self) -> tuple[Any, Any]:
        """The two last plans (p, q) of the alternation; equal up to the tolerance where it converged."""
        return self.plan, self._out(self.tensors.other)

    @property
    def value(self) -> Any:
        """F(plan, plan): the objective of the returned plan, entropy included."""
        return self._out(self.tensors.terms.total)

    @property
    def relaxed_value(self) -> Any:
        """F(p, q) for `plan_pair`."""
        return self._out(self.tensors.relaxed_value)

    @property
    def gap(self) -> Any:
        """`value` − `relaxed_value`."""
        return self._out(self.tensors.terms.total - self.tensors.relaxed_value)

    @property
    def terms(self) -> Any:
        """The weighted terms that sum to `value`."""
        return self.tensors.terms.present(batched=self.batched, numpy=self.numpy)

    @property
    def mass(self) -> Any:
        """Total mass of the plan."""
        return self._out(self.tensors.plan.sum(dim=(1, 2), dtype=torch.float64))

    @property
    def marginals(self) -> tuple[Any, Any]:
        """Row sums (n,) and column sums (m,) of the plan: the mass each point sends or receives."""
        return self._out(self.tensors.plan.sum(2)), self._out(self.tensors.plan.sum(1))

    @property
    def marginal_error(self) -> Any:
        """Relative L1 distance of the hard marginals from their weights; 0 where none is hard."""
        return self._out(self.tensors.marginal_error)

    @property
    def potentials(self) -> tuple[Any, Any]:
        """(f, g) with plan = a⊗b·exp((f ⊕ g − cost)/(m·eps)), cost and m from the other plan of the pair.

        NaN for the items of a batch that have eps = 0, where there are none.
        """
        if self.tensors.potentials is None or bool(torch.isnan(self.tensors.potentials[0]).all()):
            raise InputError("there are no potentials at eps = 0: solve with eps > 0 to have them")
        f, g = self.tensors.potentials
        return self._out(f), self._out(g)

    def transport(self, values: Any) -> Any:
        """Average `values` (n,) or (n, k) of the first space onto the second by the plan; NaN where none arrives.

        Unbatched results only.
        """
        plan = self._single().plan[0]
        v = as_tensor("values", values, like=plan)
        if v.ndim not in (1, 2) or v.shape[0] != plan.shape[0]:
            raise InputError(f"values must have shape ({plan.shape[0]},) or ({plan.shape[0]}, k), got {tuple(v.shape)}")
        check_finite("values", v)
        moved = (plan.mT @ v.reshape(len(v), -1)) / plan.sum(0)[:, None]
        moved = moved.reshape(plan.shape[1], *v.shape[1:])
        return moved.cpu().numpy() if self.numpy else moved

    # -- how it went ---------------------------------------------------------------------------------------

    @property
    def status(self) -> Any:
        """A Status, or a list with one per item."""
        codes = [Status(code) for code in self.tensors.status.tolist()]
        return codes if self.batched else codes[0]

    @property
    def converged(self) -> Any:
        """True where the status is CONVERGED: a bool, or an array of them."""
        good = self.tensors.status == int(Status.CONVERGED)
        return self._out(good) if self.batched else bool(good[0])

    @property
    def n_iter(self) -> Any:
        """Outer steps taken."""
        return self._out(self.tensors.n_iter) if self.batched else int(self.tensors.n_iter[0])

    @property
    def history(self) -> Any:
        """A History, or a list with one per item."""
        made = []
        for rows in self.tensors.trace.cpu().numpy():
            made.append(History(*rows[~np.isnan(rows).all(axis=1)].T))
        return made if self.batched else made[0]

    @property
    def message(self) -> str:
        """What happened, with numbers and the cure; for a batch, the first item that failed."""
        failed = torch.nonzero(self.tensors.status != int(Status.CONVERGED)).flatten().tolist()
        i = failed[0] if failed else 0
        t = self.tensors
        where = f"item {i} ({len(failed)} of {len(t.status)} not converged): " if self.batched and failed else ""
        status = Status(int(t.status[i]))
        return (
            f"{where}{status.message} (after {int(t.n_iter[i])} steps the plan changed by {float(t.change[i]):.1e}, "
            f"inner residual {float(t.residual[i]):.1e})"
        )

    def check(self) -> Self:
        """Itself if every item converged; raises NotConverged otherwise."""
        if bool((self.tensors.status != int(Status.CONVERGED)).any()):
            raise NotConverged(self.message)
        return self

    # -- batches -------------------------------------------------------------------------------------------

    @property
    def batched(self) -> bool:
        """Does the result hold a batch?"""
        return self.sizes is not None

    def __len__(self) -> int:
        if self.sizes is None:
            raise TypeError("this result is not a batch: it has no len()")
        return len(self.sizes)

    def __bool__(self) -> bool:
        return True  # also without a batch, where there is no len()

    def __getitem__(self, i: int) -> Self:
        size = range(len(self))[i]
        n, m = self.sizes[size]  # type: ignore[index]
        t = take(self.tensors, torch.tensor([size], device=self.tensors.plan.device))
        cut = None if t.potentials is None else (t.potentials[0][:, :n], t.potentials[1][:, :m])
        lift = t.lift and replace(t.lift, **{k: getattr(t.lift, k)[:, :n, :m] for k in ("P", "Q", "w")})
        item = replace(t, plan=t.plan[:, :n, :m], other=t.other[:, :n, :m], potentials=cut, lift=lift)
        return type(self)(item, None, self.numpy)

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))

    def _single(self) -> Tensors:
        if self.batched:
            raise InputError("this result is a batch: take an item first, result[i]")
        return self.tensors

    def _out(self, value: Tensor) -> Any:
        return present(value, batched=self.batched, numpy=self.numpy)

    # -- what people see -----------------------------------------------------------------------------------

    def __repr__(self) -> str:
        t = self.tensors
        if self.batched:
            return f"{type(self).__name__}(batch of {len(self)}, {int((t.status == Status.CONVERGED).sum())} converged)"
        n, m = t.plan.shape[1:]
        return (
            f"{type(self).__name__}({n} × {m}, value={float(t.terms.total[0]):.6g}, "
            f"mass={float(t.plan.sum(dtype=torch.float64)):.4g}, "
            f"{Status(int(t.status[0])).name.lower().replace('_', ' ')} after {int(t.n_iter[0])} steps)"
        )

    def summary(self) -> str:
        """A few lines of text: value, terms, mass and how it ended."""
        if self.batched:
            return "\n".join(f"[{i}] {item!r}" for i, item in enumerate(self))
        return "\n".join(f"{name:<12} {text}" for name, text in self._rows())

    def _rows(self) -> list[tuple[str, str]]:
        t = self._single()
        rows = [("value", f"{float(t.terms.total[0]):.8g}")]
        rows += [(f"  {name}", f"{float(term[0]):.6g}") for name, term in t.terms.as_dict().items()]
        rows += [("mass", f"{float(t.plan.sum(dtype=torch.float64)):.6g}")]
        if float(t.marginal_error[0]):
            rows += [("hard sides", f"off by {float(t.marginal_error[0]):.1e}")]
        return [
            *rows,
            ("gap", f"{float(t.terms.total[0] - t.relaxed_value[0]):.1e}"),
            ("status", self.message),
        ]

    def _repr_html_(self) -> str:
        rows = [(f"[{i}]", repr(item)) for i, item in enumerate(self)] if self.batched else self._rows()
        good = bool((self.tensors.status == int(Status.CONVERGED)).all())
        colour = "#2a7d4f" if good else "#b3541e"
        body = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(text)}</td></tr>"
            for name, text in rows
        )
        return f"<table style='border-left:4px solid {colour}'>{body}</table>"

    # -- files ---------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a `.npz` without pickle; the file appears complete or not at all."""
        arrays = {name: value.cpu().numpy() for name, value in _flat(self.tensors).items()}
        arrays["sizes"] = np.array(self.sizes if self.batched else [], dtype=np.int64).reshape(-1, 2)
        arrays["batched"], arrays["numpy"] = np.array(self.batched), np.array(self.numpy)
        target = Path(path)
        with all_or_nothing(target.parent) as stage, (stage / target.name).open("wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = dict(file)
            tensors = _unflat({k: torch.from_numpy(v) for k, v in arrays.items() if v.ndim})
            result = cls(tensors, _sizes(arrays), bool(arrays["numpy"]))
            _check_loaded(result)
        except Exception as error:  # whatever a broken file makes the readers raise
            raise InputError(f"{os.fspath(path)} is not a saved Result: {error}") from error
        return result


@dataclass(frozen=True, eq=False, repr=False)
class ConicResult(Result):
    """What `solve_conic` found: `value` is CGW at a feasible lift, so an upper bound up to the kernel's error.

    `plan` is for pictures: its mass m obeys R m² = `terms.apart` − `value`, R = rho1 + rho2. For partial transport it
    says what each pair of points saves, and `relaxed_value` is the lowest bilinear value that any step saw.
    """

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
    def kernel_error(self) -> Any:
        """Bound on the error of the kernel exp(−λ/R); 0 where it was summed exactly."""
        return self._out(self._lift.error)

    @property
    def kernel_rank(self) -> Any:
        """Terms of the factorised kernel; 0 where it was summed exactly."""
        return self._out(self._lift.rank) if self.batched else int(self._lift.rank[0])

    def better(self, other: ConicResult) -> ConicResult:
        """Item by item the one of two results, for the same problem, with the lower value; itself where they tie."""
        lower = other.tensors.terms.total < self.tensors.terms.total
        steps = max(self.tensors.trace.shape[1], other.tensors.trace.shape[1])
        merged, theirs = clone(_with_steps(self.tensors, steps)), _with_steps(other.tensors, steps)
        put_(merged, lower, take(theirs, lower))
        return replace(self, tensors=merged)

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

    def _rows(self) -> list[tuple[str, str]]:
        rows = super()._rows()
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


def _with_steps(tensors: Tensors, steps: int) -> Tensors:
    """The history longer, by NaN."""
    missing = steps - tensors.trace.shape[1]
    return replace(tensors, trace=torch.nn.functional.pad(tensors.trace, (0, 0, 0, missing), value=torch.nan))


def _sizes(arrays: dict[str, np.ndarray]) -> tuple[tuple[int, int], ...] | None:
    return tuple((int(n), int(m)) for n, m in arrays["sizes"]) if arrays["batched"] else None


def _check_loaded(result: Result) -> None:
    """Raise if the parts of a loaded result do not fit together."""
    t = result.tensors
    items = len(result) if result.batched else 1
    if (
        t.plan.ndim != 3
        or t.plan.shape != t.other.shape
        or t.trace.ndim != 3
        or t.trace.shape[2] != len(fields(History))
    ):
        raise ValueError("arrays of the wrong shape")
    lengths = {len(value) for value in _flat(t).values()}
    if lengths != {items}:
        raise ValueError(f"arrays of {sorted(lengths)} items, expected {items}")
    for code in t.status.tolist():
        Status(code)
    if isinstance(result, ConicResult) and t.lift is None:
        raise ValueError("no lift: load it as a Result")


NESTED = ("terms", "potentials", "lift")


def _flat(tensors: Tensors) -> dict[str, Tensor]:
    """Names → tensors; the nested ones are named part by part."""
    flat = {f"terms_{k}": v for k, v in tensors.terms.as_dict().items()}
    if tensors.potentials is not None:
        flat |= dict(zip(("f", "g"), tensors.potentials, strict=True))
    if tensors.lift is not None:
        flat |= {f"lift_{f.name}": getattr(tensors.lift, f.name) for f in fields(Lift)}
    plain = (f.name for f in fields(tensors) if f.name not in NESTED)
    return flat | {name: getattr(tensors, name) for name in plain}


def _unflat(flat: dict[str, Tensor]) -> Tensors:
    conic = "lift_P" in flat
    terms = _nested(ConicTerms if conic else Terms, "terms", flat)
    potentials = (flat["f"], flat["g"]) if "f" in flat else None
    plain = {f.name: flat[f.name] for f in fields(Tensors) if f.name not in NESTED}
    return Tensors(terms=terms, potentials=potentials, lift=_nested(Lift, "lift", flat) if conic else None, **plain)


def _nested(kind: Any, prefix: str, flat: dict[str, Tensor]) -> Any:
    return kind(**{f.name: flat[f"{prefix}_{f.name}"] for f in fields(kind)})
