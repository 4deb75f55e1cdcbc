"""The result of a solve: plan, value and terms, and how the solve ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from .._utils.checks import as_tensor, check_finite, describe_value
from .._utils.pytree import clone, put_, take
from ..errors import InputError
from ..geometry.implicit_plan import ImplicitPlan
from .base import BatchedResultBase
from .io import (
    Arrays,
    check_output,
    from_json_array,
    json_array,
    output_from_arrays,
    output_to_arrays,
    with_current_names,
)
from .parameters import are_equal, item_parameters
from .projection import weighted_means
from .records import LINEAR_PROGRAM_LIMIT_MESSAGE, History, SolverOutput, Status, StepBackend, to_user

# Entries of `parameters` that two results of one problem share.
_PROBLEM_PARAMETERS = ("divergence", "rho", "mass", "eps", "loss", "fused", "cone", "cost")


@dataclass(frozen=True, eq=False, repr=False)
class Result(BatchedResultBase):
    """The plan that a solve returned, its value and terms, and whether the solve converged.

    Values are numbers and NumPy arrays if the spaces were made of arrays, else tensors, all but `history`, which has
    NumPy arrays; a batch adds a dimension B.
    `sizes` are the (n, m) of the items of a batch without padding, or None; `r[i]` is item i without its padding.
    `parameters` are the rho, eps and solver options of the solve as a plain dict, numbers per item in a batch.

    >>> import numpy as np, ugw
    >>> x = ugw.Space.from_points(np.random.default_rng(0).random((10, 2)))
    >>> r = ugw.solve(x, x, rho=1.0, eps=1e-3).check()  # raises unless it converged
    >>> r.plan.shape, r.status.name, round(r.terms.total - r.value, 9)
    ((10, 10), 'CONVERGED', 0.0)
    """

    tensors: SolverOutput
    sizes: tuple[tuple[int, int], ...] | None
    numpy: bool
    parameters: dict[str, Any] = field(default_factory=dict)

    # Whether `tensors.lift` must be there: in conic results it is.
    needs_lift = False

    # -- values -------------------------------------------------------------------------------------------

    @property
    def plan(self) -> Any:
        """The plan, with its own mass: (n, m), or (B, n, m), 0 at padded points; a `LazyPlan` if it is not stored."""
        return self._to_user(self.tensors.plan)

    @property
    def path(self) -> str:
        """How the solve represented plans: "stored" as matrices, or "streaming", by potentials (a LazyPlan)."""
        return "streaming" if isinstance(self.tensors.plan, ImplicitPlan) else "stored"

    @property
    def plan_pair(self) -> tuple[Any, Any]:
        """The last two plans (p, q), (n, m) or (B, n, m) each: p is `plan`, q the plan before the last step.

        They are nearly equal if converged, and the same plan for solvers by linear programs. Each has its own mass.
        """
        return self.plan, self._to_user(self.tensors.previous_plan)

    @property
    def value(self) -> Any:
        """The objective F(p, p) of the returned plan p, the sum of `terms`, so with entropy: a number or (B,)."""
        return self._to_user(self.tensors.terms.total)

    @property
    def relaxed_value(self) -> Any:
        """F(p, q), a number or (B,): the objective with q, `plan_pair[1]`, in place of one of the two p of each term.

        For FrankWolfe it is `value`.
        """
        return self._to_user(self.tensors.relaxed_value)

    @property
    def gap(self) -> Any:
        """`value` − `relaxed_value` = F(p, p) − F(p, q), a number or (B,); (p, q): `plan_pair`. 0 for FrankWolfe."""
        return self._to_user(self.tensors.terms.total - self.tensors.relaxed_value)

    @property
    def terms(self) -> Any:
        """The terms, numbers or (B,), that sum to `value`: `Terms`, or for a conic problem `ConicTerms`.

        `Terms` has distortion, linear, marginal_a, marginal_b and entropy, multiplied by 1, alpha, rho1, rho2 and eps;
        `ConicTerms` has unmatched and overlap ≤ 0.
        """
        return self.tensors.terms.to_user(batched=self.batched, numpy=self.numpy)

    @property
    def mass(self) -> Any:
        """Total mass of the plan, the sum of its entries, not a share of that of the weights: a number or (B,)."""
        return self._to_user(self.tensors.plan.sum(dim=(1, 2), dtype=torch.float64))

    @property
    def marginals(self) -> tuple[Any, Any]:
        """Row sums (n,) or (B, n) and column sums (m,) or (B, m) of the plan: the mass that each point keeps."""
        return self._to_user(self.tensors.plan.sum(2)), self._to_user(self.tensors.plan.sum(1))

    @property
    def marginal_error(self) -> Any:
        """Relative L1 violation of the constraints on the marginals, a number or (B,).

        It is the larger distance of a hard marginal from its weights, both scaled to mass 1, 0 if none is hard. For TV
        and Mass it is the excess of the marginals over the weights plus the deviation from a given mass, over the mass.
        """
        return self._to_user(self.tensors.marginal_error)

    @property
    def potentials(self) -> tuple[Any, Any]:
        """f (n,) and g (m,) with plan = a⊗b·exp((f ⊕ g − cost)/(m(q) eps)); cost and mass m(q) are those of the plan q.

        q is `plan_pair[1]`, cost (n, m) that of the linear problem of the last step. In a batch (B, n) and (B, m), NaN
        for items with eps = 0. Raises InputError if no item has potentials.
        """
        if self.tensors.potentials is None or bool(torch.isnan(self.tensors.potentials[0]).all()):
            raise InputError("there are no potentials at eps = 0: solve with eps > 0 to have them")
        f, g = self.tensors.potentials
        return self._to_user(f), self._to_user(g)

    def transport(self, values: Any) -> Any:
        """Return the barycentric projection of `values`, (n,) or (n, k), to the second space, (m,) or (m, k).

        It is the mean with the weights of a column of the plan, NaN where the column is 0. Unbatched results only.
        """
        plan = self._unbatched_output().plan
        n, m = plan.shape[1:]
        v = as_tensor("values", values, like=plan.sum(2))
        if v.ndim not in (1, 2) or v.shape[0] != n:
            raise InputError(f"values must have shape ({n},) or ({n}, k), got {tuple(v.shape)}")
        check_finite("values", v)
        means = weighted_means(plan.mT, v.reshape(1, n, -1)).reshape(m, *v.shape[1:])
        return means.cpu().numpy() if self.numpy else means

    # -- convergence ---------------------------------------------------------------------------------------

    @property
    def status(self) -> Any:
        """How the solve ended: a Status such as CONVERGED or MAX_ITER, or a list of B of them for a batch."""
        codes = [Status(code) for code in self.tensors.status.tolist()]
        return codes if self.batched else codes[0]

    @property
    def converged(self) -> Any:
        """Whether the status is CONVERGED: a bool, or an array (B,) of bools."""
        good = self.tensors.status == int(Status.CONVERGED)
        return self._to_user(good) if self.batched else bool(good[0])

    @property
    def n_iter(self) -> Any:
        """The number of outer steps from the initial plan to the returned one: an int, or an array (B,)."""
        return self._to_user(self.tensors.n_iter) if self.batched else int(self.tensors.n_iter[0])

    @property
    def n_iter_search(self) -> Any:
        """The number of outer steps by which the initial plan was chosen: an int, or an array (B,).

        It counts the steps of all candidates, also on clusters or samples of the points, and of solves from other
        initial plans that ended at higher values: 0 for an initial plan that is given or made by a formula. Together
        with `n_iter` it is the number of all outer steps. None for files of versions that did not count them.
        """
        return self._optional(self.tensors.n_iter_search, int)

    @property
    def backend(self) -> Any:
        """What computed the steps that `n_iter` counts, such as "compiled" or "torch": a string, or a list of B.

        "compiled": the C++ loop; "torch", with "compiled Sinkhorn" if the linear problems were solved in C++, with
        "triton" and "CUDA graphs" on a GPU; "POT" and "SciPy": linear programs. Several are joined by " + ". None for
        files of versions that did not store it.
        """
        return self._optional(self.tensors.backend, lambda code: StepBackend(code).label)

    @property
    def history(self) -> Any:
        """The History of the solve: arrays (steps,) of the objective, plan change, residual and mass of outer steps.

        NumPy arrays, also if the spaces were made of tensors. A batched result has a list with one History per item.
        """
        histories = []
        for rows in self.tensors.trace.cpu().numpy():
            histories.append(History(*rows[~np.isnan(rows).all(axis=1)].T))
        return histories if self.batched else histories[0]

    @property
    def message(self) -> str:
        """How the solve ended, in numbers, and what to change; of a batch, for the first item that failed."""
        failed = torch.nonzero(self.tensors.status != int(Status.CONVERGED)).flatten().tolist()
        i = failed[0] if failed else 0
        t = self.tensors
        where = f"item {i} ({len(failed)} of {len(t.status)} not converged): " if self.batched and failed else ""
        status = Status(int(t.status[i]))
        return (
            f"{where}{self._advice(status, i)} (after {int(t.n_iter[i])} steps "
            f"the plan changed by {float(t.change[i]):.1e}, inner residual {float(t.residual[i]):.1e})"
        )

    def _advice(self, status: Status, index: int) -> str:
        """Return the text `status.message`, for MAX_ITER of solvers by linear programs one that does not mention eps.

        index: of the item that has the status.
        """
        solver = self.parameters.get("solver") or {}
        solver = solver[index] if isinstance(solver, list) else solver
        name = (solver.get("solver") or solver).get("name")  # a Multistart holds the solver that it repeats
        is_linear_program = name in ("FrankWolfe", "AlternateLP")
        return LINEAR_PROGRAM_LIMIT_MESSAGE if is_linear_program and status == Status.MAX_ITER else status.message

    # -- batches -------------------------------------------------------------------------------------------

    @property
    def batched(self) -> bool:
        """Whether the result holds a batch, also of one item; values then have a leading dimension B."""
        return self.sizes is not None

    @property
    def _n_items(self) -> int:
        """The number of items; 1 for a single result."""
        return len(self.tensors.status)

    def _item(self, index: int) -> Self:
        """Return the result of item `index` of a batch, without its padded points."""
        n, m = self.sizes[index]  # type: ignore[index]  # a batch has sizes
        t = take(self.tensors, torch.tensor([index], device=self.tensors.plan.device))
        item = replace(
            t,
            plan=_crop_plan(t.plan, n, m),
            previous_plan=_crop_plan(t.previous_plan, n, m),
            potentials=None if t.potentials is None else (t.potentials[0][:, :n], t.potentials[1][:, :m]),
            lift=t.lift and replace(t.lift, **{k: getattr(t.lift, k)[:, :n, :m] for k in ("P", "Q", "w")}),
        )
        return type(self)(item, None, self.numpy, item_parameters(self.parameters, index, (n, m)))

    def better(self, other: Self) -> Self:
        """Return the result that has each item from the one of two results of a problem with the lower value.

        Ties are taken from this result. Both must be of one class, of the same sizes, dtype and path, and of equal rho,
        eps, loss, fused term and cone, up to rounding. `parameters` are those of the result from which all items come;
        if items come from both, they are the entries that are equal in both, so that for instance two different `init`
        are left out.
        """
        self._check_same_problem(other)
        lower = other.tensors.terms.total < self.tensors.terms.total
        this_output, other_output = SolverOutput.with_common_shapes(self.tensors, other.tensors)
        merged = clone(this_output)
        put_(merged, lower, take(other_output, lower))
        parameters = other.parameters if bool(lower.all()) else self.parameters
        if bool(lower.any()) and not bool(lower.all()):
            shared = (name for name, value in parameters.items() if are_equal(value, other.parameters.get(name)))
            parameters = {name: parameters[name] for name in shared}
        return replace(self, tensors=merged, parameters=parameters)

    def _check_same_problem(self, other: Any) -> None:
        """Raise InputError unless `other` is a result of the same class, sizes, dtype, device, path and parameters.

        These are divergence, rho or mass, eps, loss, fused, cone and cost, up to rounding, not distances and weights.
        """
        if type(other) is not type(self):
            raise InputError(f"better compares with another {type(self).__name__}, got {describe_value(other)}")
        mine, theirs = self._problem_facts(), other._problem_facts()
        for name in (name for name in mine if name in theirs):  # a file of an early version has no parameters
            if not are_equal(theirs[name], mine[name]):
                got, expected = describe_value(theirs[name]), describe_value(mine[name])
                raise InputError(f"better compares results of one problem, got {name} {got}, expected {expected}")

    def _problem_facts(self) -> dict[str, Any]:
        """Return a dict of number of items, sizes, shape, dtype, device, path and the parameters of the problem."""
        plan = self.tensors.plan
        count = len(self) if self.batched else "one, without a batch"
        facts = {"number of items": count, "sizes": self.sizes, "shape": plan.shape, "dtype": plan.dtype}
        parameters = {name: self.parameters.get(name) for name in _PROBLEM_PARAMETERS if self.parameters}
        return facts | {"device": plan.device, "path": self.path} | parameters

    def _unbatched_output(self) -> SolverOutput:
        """Return the `SolverOutput` (plans, terms, status, ...) of a single result; raise InputError for a batch."""
        if self.batched:
            raise InputError("this result is a batch: take an item first, result[i]")
        return self.tensors

    def _to_user(self, value: Tensor) -> Any:
        """Return a copy of a tensor (B, ...) as a number, an array or a tensor; without B for a single result."""
        return to_user(value, batched=self.batched, numpy=self.numpy)

    def _optional(self, codes: Tensor | None, convert: Callable[[int], Any]) -> Any:
        """Return `convert(code)` of the code (1,) of a single result, of each code (B,) of a batch; None for None.

        Integers of a batch are an array or a tensor, other values a list.
        """
        if codes is None:
            return None
        if self.batched and convert is int:
            return self._to_user(codes)
        values = [convert(code) for code in codes.tolist()]
        return values if self.batched else values[0]

    # -- display -----------------------------------------------------------------------------------

    def __repr__(self) -> str:
        """Return one line: size, value, mass and status, or how many items of a batch converged."""
        if self.batched:
            return f"{type(self).__name__}(batch of {len(self)}, {int(self.converged.sum())} converged)"
        n, m = self.tensors.plan.shape[1:]
        return (
            f"{type(self).__name__}({n} × {m}, value={self.value:.6g}, mass={self.mass:.4g}, "
            f"{self.status.name.lower().replace('_', ' ')} after {self.n_iter} steps)"
        )

    def summary(self) -> str:
        """Return a few lines of text: value, terms, mass, and how the solve ended; of a batch one line per item."""
        if self.batched:
            return "\n".join(f"[{i}] {item!r}" for i, item in enumerate(self))
        return "\n".join(f"{name:<12} {text}" for name, text in self.rows())

    def rows(self) -> list[tuple[str, str]]:
        """Return (name, text) of each line of `summary`; of a batch one line per item."""
        if self.batched:
            return [(f"[{i}]", repr(item)) for i, item in enumerate(self)]
        rows = [("value", f"{self.value:.8g}")]
        rows += [(f"  {name}", f"{term:.6g}") for name, term in self.terms.as_dict().items()]
        rows += [("mass", f"{self.mass:.6g}")]
        if self.marginal_error:
            rows += [("hard sides", f"off by {self.marginal_error:.1e}")]
        rows += [("gap", f"{self.gap:.1e}"), ("status", self.message)]
        if self.n_iter_search is not None:
            steps = f"{self.n_iter_search} steps of candidates for the initial plan" if self.n_iter_search else "none"
            rows += [("search", steps)]
        return rows if self.backend is None else [*rows, ("backend", self.backend)]

    # -- files ---------------------------------------------------------------------------------------------

    def to_arrays(self) -> Arrays:
        """Return arrays by name, as `save` writes them: tensors, sizes (B, 2) or (0, 2), batched, numpy, parameters."""
        arrays = output_to_arrays(self.tensors)
        arrays["sizes"] = np.array(self.sizes if self.batched else [], dtype=np.int64).reshape(-1, 2)
        arrays["batched"], arrays["numpy"] = np.array(self.batched), np.array(self.numpy)
        return arrays | {"parameters": json_array(self.parameters)}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Return the result from the arrays of `to_arrays`; raise ValueError if they do not fit together."""
        arrays = with_current_names(arrays)
        sizes = tuple((int(n), int(m)) for n, m in arrays["sizes"]) if arrays["batched"] else None
        output = output_from_arrays(arrays)
        check_output(output, 1 if sizes is None else len(sizes))
        if cls.needs_lift and output.lift is None:
            raise ValueError("no lift: load it as a Result")
        parameters = from_json_array(arrays["parameters"]) if "parameters" in arrays else {}
        return cls(output, sizes, bool(arrays["numpy"]), parameters)


def _crop_plan(plan: Tensor | ImplicitPlan, n: int, m: int) -> Tensor | ImplicitPlan:
    """Return the first n rows and m columns of a plan (B, n', m'), a tensor or an `ImplicitPlan`."""
    return plan.crop(n, m) if isinstance(plan, ImplicitPlan) else plan[:, :n, :m]
