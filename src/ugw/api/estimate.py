"""Memory and work of a solve, estimated before it runs, and what would fit where it does not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .._utils.deprecation import renamed_attribute
from .._utils.device_memory import available_bytes
from ..geometry.space import Space
from ..initializers.multistart import Multistart, base_solver, check_solver
from ..problems.build import Fused, check_fused, check_spaces, common_batch_size, loss_distortion, uses_streaming
from ..solvers.alternating import DEFAULT_SOLVER, AlternateMin
from .memory import MemoryModel, model_of_spaces

GIB = 2**30


@dataclass(frozen=True)
class Estimate:
    """The memory and work that a solve will take.

    path: "stored", or "streaming" if plans are not stored; bytes: the peak, on top of what the spaces hold already;
    work: multiply-adds of one outer step of all items with all its inner iterations; chunk_size: items solved at a
    time; available: bytes that the device has left, None if unknown; advice: what would fit, "" if this does.

    >>> import numpy as np, ugw
    >>> x = ugw.Space.from_points(np.zeros((50_000, 3)), metric="sqeuclidean")
    >>> e = ugw.estimate(x, x)
    >>> e.path, e.bytes < 8 * 50_000**2  # less than one plan
    ('streaming', True)
    """

    path: str
    bytes: int
    work: float
    chunk_size: int
    available: int | None
    advice: str

    together = renamed_attribute("Estimate", "together", "chunk_size")

    @property
    def fits(self) -> bool:
        """Whether the bytes needed are at most the bytes available; True if the latter are unknown (None)."""
        return self.available is None or self.bytes <= self.available

    @property
    def message(self) -> str:
        """One line: the memory needed and available, after "fits: ", or after "out of memory: " with what would fit."""
        return f"fits: {self._needs}" if self.fits else self.error_message

    @property
    def error_message(self) -> str:
        """The message of an OutOfMemory error, which an allocation may cause although the estimate fits."""
        advice = self.advice or "what would fit: smaller problems, float32, or fewer items in a call"
        return f"out of memory: {self._needs}; {advice}"

    @property
    def _needs(self) -> str:
        """The text "stored plans need about 1.2 GiB, 8 GiB available", with "streaming" or "an unknown amount"."""
        needed, available = self._amounts
        return f"{self.path} plans need about {needed}, {available or 'an unknown amount'} available"

    @property
    def _amounts(self) -> tuple[str, str | None]:
        """Texts (needed, available) of the memory in GiB to 3 digits, or more if the two differ only there.

        available is None if unknown.
        """
        if self.available is None:
            return f"{self.bytes / GIB:.3g} GiB", None
        needed, available = self.bytes / GIB, self.available / GIB
        n_digits = next((k for k in range(3, 17) if f"{needed:.{k}g}" != f"{available:.{k}g}"), 3)
        return f"{needed:.{n_digits}g} GiB", f"{available:.{n_digits}g} GiB"

    def __repr__(self) -> str:
        """Return one line: path, memory, work, and whether it fits."""
        needed, available = self._amounts
        fits = "fits" if self.fits else f"does not fit: {self.advice}"
        return (
            f"Estimate({self.path}, {needed} of {available or 'unknown'} available, about {self.work:.1e} "
            f"multiply-adds an outer step, {fits})"
        )


def estimate(
    x: Space, y: Space, *, fused: Fused | None = None, loss: Any = None, solver: AlternateMin | Multistart | None = None
) -> Estimate:
    """Return the `Estimate`, the memory and work that `solve` with the same arguments and its default start will need.

    The memory (`bytes`) is between one and two times the measured peak, apart from freed blocks that the allocator
    keeps. rho and eps count as numbers: arrays of them make a batch, which unbatched spaces do not show.

    >>> import numpy as np, ugw
    >>> x = ugw.Space.from_points(np.random.default_rng(0).random((2000, 3)))
    >>> e = ugw.estimate(x, x)
    >>> e.path, 0.5 < e.bytes / 2**30 < 2
    ('stored', True)
    """
    solver = check_solver(solver, DEFAULT_SOLVER)
    check_spaces(x, y)
    check_fused(fused)
    batch = common_batch_size({"the first space": x.weight_tensor[..., 0], "the second space": y.weight_tensor[..., 0]})
    inner = base_solver(solver).inner
    is_streaming = uses_streaming(x, y, fused=fused, loss=loss, method=inner.method)
    distortion_sum = None if loss is None else loss_distortion(x, y, loss)
    model = model_of_spaces(x, y, distortion_sum, is_streaming=is_streaming, is_fused=fused is not None)
    n_plans = solver.n if isinstance(solver, Multistart) else 1
    return estimate_of(replace(model, batch=batch or 1, n_plans=n_plans), inner.max_iter)


def estimate_of(model: MemoryModel, n_inner: int) -> Estimate:
    """Return the `Estimate` (memory, work, advice) of a model's whole batch; n_inner: inner iterations a step."""
    available, needed = available_bytes(model.device), model.total_bytes(model.chunk_size)
    advice = "" if available is None or needed <= available else _advice(model, available)
    path = "streaming" if model.path == "streaming" else "stored"
    return Estimate(path, needed, _work(model, n_inner), model.chunk_size, available, advice)


def _work(model: MemoryModel, n_inner: int) -> float:
    """Return the multiply-adds of one outer step of all items with `n_inner` inner iterations."""
    entries = float(model.batch * model.n_plans * model.n * model.m)
    if model.path == "streaming":
        # Each pass computes every entry again, and the last one multiplies the plan by the basis.
        return entries * ((2 * n_inner + 2) * (min(model.streaming_ranks) + 2) + max(model.streaming_ranks) + 1)
    products = model.n + model.m if model.ranks is None or model.n_terms > 1 else 2 * sum(model.ranks)
    return entries * (model.n_terms * products + 2 * n_inner)


def _advice(model: MemoryModel, available: int) -> str:
    """Return the part of an error message that names changes with which the problem would fit.

    Each change is given with the memory it needs, in GiB. If no change is enough, numbers of points are given.
    available: bytes.
    """
    options = {}
    if model.path != "streaming" and model.loss == "squares":
        low_rank = 'Space.from_points with metric="sqeuclidean" or tol=, or Space.compressed(tol)'
        name = f'low-rank spaces ({low_rank}) with inner=Sinkhorn(method="streaming")'
        options[name] = replace(model, path="streaming", ranks=model.streaming_ranks, n_plans=1, n_candidates=1)
    if model.itemsize == 8:
        options["float32, Space.to(torch.float32)"] = replace(model, itemsize=4)
    if model.n_plans > 1 or model.has_coarse_start:
        name = 'one start, without Multistart and with init="product"'
        options[name] = replace(model, n_plans=1, n_candidates=1, has_coarse_start=False)
    if model.batch > 1:
        count = max(1, int(available / model.total_bytes(1) * model.batch))
        options[f"{count} items in a call instead of {model.batch}"] = replace(model, batch=count)
    needs = {name: option.total_bytes(option.chunk_size) for name, option in options.items()}
    fitting = [f"{name} ({need / GIB:.3g} GiB)" for name, need in needs.items() if need <= available]
    if fitting:
        return "what would fit: " + ", or ".join(fitting)
    share = (available / model.total_bytes(1)) ** (1.0 if model.path == "streaming" else 0.5)
    return f"what would fit: about {int(share * model.n)} × {int(share * model.m)} points, as a sample of them"
