"""What a solve found, and whether to believe it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from html import escape
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from .._utils.atomic_files import atomic_folder
from .._utils.checks import as_tensor, check_finite
from .._utils.pytree import clone, put_, take
from ..errors import InputError, NotConverged
from ..geometry.bilinear_matrix import BilinearMatrix
from ..geometry.implicit_plan import ImplicitPlan
from .records import ConicTerms, History, Lift, SolverOutput, Status, Terms, present


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A plan, its value, and the truth about both.

    NumPy arrays if the spaces were made of them, else tensors; scalars where the spaces had no batch.
    `sizes` are the true (n, m) of the items of a batch, or None; `r[i]` is item i without its padding.

    >>> import numpy as np, ugw
    >>> x = ugw.Space.from_points(np.random.default_rng(0).random((10, 2)))
    >>> r = ugw.solve(x, x, rho=1.0, eps=1e-3).check()  # raises unless it converged
    >>> r.plan.shape, r.status.name, round(r.terms.total - r.value, 9)
    ((10, 10), 'CONVERGED', 0.0)
    """

    tensors: SolverOutput
    sizes: tuple[tuple[int, int], ...] | None
    numpy: bool

    needs_lift = False

    # -- numbers -------------------------------------------------------------------------------------------

    @property
    def plan(self) -> Any:
        """(n, m), or (B, n, m) with zeros for padding; a `LazyPlan` where it is not stored, see `path`."""
        return self._out(self.tensors.plan)

    @property
    def path(self) -> str:
        """How the plan was kept while it was solved for: "stored", or "streaming" if it never was."""
        return "streaming" if isinstance(self.tensors.plan, ImplicitPlan) else "stored"

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
        plan = self._single().plan
        n, m = plan.shape[1:]
        v = as_tensor("values", values, like=plan.sum(2))
        if v.ndim not in (1, 2) or v.shape[0] != n:
            raise InputError(f"values must have shape ({n},) or ({n}, k), got {tuple(v.shape)}")
        check_finite("values", v)
        moved = (plan.mT @ v.reshape(1, n, -1)) / plan.sum(1)[:, :, None]
        moved = moved.reshape(m, *v.shape[1:])
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
        item = replace(t, plan=_cut(t.plan, n, m), other=_cut(t.other, n, m), potentials=cut, lift=lift)
        return type(self)(item, None, self.numpy)

    def better(self, other: Self) -> Self:
        """Item by item the one of two results, for the same problem, with the lower value; itself where they tie."""
        lower = other.tensors.terms.total < self.tensors.terms.total
        mine, theirs = SolverOutput.alike(self.tensors, other.tensors)
        merged = clone(mine)
        put_(merged, lower, take(theirs, lower))
        return replace(self, tensors=merged)

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))

    def _single(self) -> SolverOutput:
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
            f"{type(self).__name__}({n} × {m}, value={t.terms.total[0].item():.6g}, "
            f"mass={t.plan.sum((1, 2), dtype=torch.float64).item():.4g}, "
            f"{Status(int(t.status[0])).name.lower().replace('_', ' ')} after {int(t.n_iter[0])} steps)"
        )

    def summary(self) -> str:
        """A few lines of text: value, terms, mass and how it ended."""
        if self.batched:
            return "\n".join(f"[{i}] {item!r}" for i, item in enumerate(self))
        return "\n".join(f"{name:<12} {text}" for name, text in self.rows())

    def rows(self) -> list[tuple[str, str]]:
        """The name and the text of each line of `summary`. Unbatched results only."""
        t = self._single()
        rows = [("value", f"{t.terms.total[0].item():.8g}")]
        rows += [(f"  {name}", f"{term[0].item():.6g}") for name, term in t.terms.as_dict().items()]
        rows += [("mass", f"{t.plan.sum((1, 2), dtype=torch.float64).item():.6g}")]
        if float(t.marginal_error[0]):
            rows += [("hard sides", f"off by {float(t.marginal_error[0]):.1e}")]
        return [
            *rows,
            ("gap", f"{(t.terms.total[0] - t.relaxed_value[0]).item():.1e}"),
            ("status", self.message),
        ]

    def _repr_html_(self) -> str:
        rows = [(f"[{i}]", repr(item)) for i, item in enumerate(self)] if self.batched else self.rows()
        good = bool((self.tensors.status == int(Status.CONVERGED)).all())
        color = "#2a7d4f" if good else "#b3541e"
        body = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(text)}</td></tr>"
            for name, text in rows
        )
        return f"<table style='border-left:4px solid {color}'>{body}</table>"

    # -- files ---------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a `.npz` without pickle; the file appears complete or not at all."""
        arrays = {name: value.detach().cpu().numpy() for name, value in _flat(self.tensors).items()}
        arrays["sizes"] = np.array(self.sizes if self.batched else [], dtype=np.int64).reshape(-1, 2)
        arrays["batched"], arrays["numpy"] = np.array(self.batched), np.array(self.numpy)
        target = Path(path)
        with atomic_folder(target.parent) as stage, (stage / target.name).open("wb") as file:
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


def _cut(plan: Any, n: int, m: int) -> Any:
    return plan.crop(n, m) if isinstance(plan, ImplicitPlan) else plan[:, :n, :m]


def _sizes(arrays: dict[str, np.ndarray]) -> tuple[tuple[int, int], ...] | None:
    return tuple((int(n), int(m)) for n, m in arrays["sizes"]) if arrays["batched"] else None


def _check_loaded(result: Result) -> None:
    """Raise if the parts of a loaded result do not fit together."""
    t = result.tensors
    items = len(result) if result.batched else 1
    if (
        len(t.plan.shape) != 3
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
    if result.needs_lift and t.lift is None:
        raise ValueError("no lift: load it as a Result")


NESTED = ("terms", "potentials", "lift")
PLANS = ("plan", "other")


def _flat(tensors: SolverOutput) -> dict[str, Tensor]:
    """Names → tensors; the nested ones are named part by part."""
    flat = {f"terms_{k}": v for k, v in tensors.terms.as_dict().items()}
    if tensors.potentials is not None:
        flat |= dict(zip(("f", "g"), tensors.potentials, strict=True))
    if tensors.lift is not None:
        flat |= {f"lift_{f.name}": getattr(tensors.lift, f.name) for f in fields(Lift)}
    for name in PLANS:
        flat |= _flat_plan(name, getattr(tensors, name))
    plain = (f.name for f in fields(tensors) if f.name not in (*NESTED, *PLANS))
    return flat | {name: getattr(tensors, name) for name in plain}


# Fields of an implicit plan and their names in saved files, which stay as they are so that older files can be read.
IMPLICIT_PLAN_KEYS = {"row_sums": "rows_sum", "col_sums": "cols_sum", "right_product": "moved", "f": "f", "g": "g"}


def _flat_plan(name: str, plan: Tensor | ImplicitPlan) -> dict[str, Tensor]:
    if not isinstance(plan, ImplicitPlan):
        return {name: plan}
    parts = {f"{name}_{key}": getattr(plan, field) for field, key in IMPLICIT_PLAN_KEYS.items()}
    return parts | {f"{name}_log_{f.name}": getattr(plan.log_plan, f.name) for f in fields(plan.log_plan)}


def _unflat(flat: dict[str, Tensor]) -> SolverOutput:
    conic = "lift_P" in flat
    terms = _nested(ConicTerms if conic else Terms, "terms", flat)
    potentials = (flat["f"], flat["g"]) if "f" in flat else None
    plain = {f.name: flat[f.name] for f in fields(SolverOutput) if f.name not in (*NESTED, *PLANS)}
    plans = {name: _unflat_plan(name, flat) for name in PLANS}
    lift = _nested(Lift, "lift", flat) if conic else None
    return SolverOutput(terms=terms, potentials=potentials, lift=lift, **plans, **plain)


def _unflat_plan(name: str, flat: dict[str, Tensor]) -> Any:
    if name in flat:
        return flat[name]
    log = _nested(BilinearMatrix, f"{name}_log", flat)
    return ImplicitPlan(log, **{field: flat[f"{name}_{key}"] for field, key in IMPLICIT_PLAN_KEYS.items()})


def _nested(kind: Any, prefix: str, flat: dict[str, Tensor]) -> Any:
    return kind(**{f.name: flat[f"{prefix}_{f.name}"] for f in fields(kind)})
