"""Every pair of many spaces: blocks of them are solved, kept, and put together."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from .._utils.version import version
from ..errors import ConvergenceWarning, Incomplete, InputError
from ..initializers.conic import plain
from .blocks import Block
from .checkpoint import Checkpoint
from .executor import WorkersDied, missing_package, outcomes
from .inputs import Side, check_masses, read
from .job import Job, Matrix
from .methods import Given, Method
from .result import PairwiseResult


def pairwise(  # noqa: PLR0913 - what is computed, how it is called, and how it is run: each said by its own word
    spaces: Any,
    spaces_y: Any = None,
    *,
    method: str | Method = "ugw",
    rho: Any = "auto",
    eps: Any = "auto",
    solver: Any = None,
    names: Any = None,
    n_jobs: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> PairwiseResult:
    """The values of all pairs of spaces, or of each space with each of `spaces_y`: docs/many_spaces.md.

    spaces: a list of single spaces of any sizes, a batch, or a dictionary of them by name. Of one list each pair is
    solved once, and where a space is exactly 0 from itself (eps = 0, "cgw") that is not solved.
    method: "ugw"; "gw", balanced; "cgw", the conic distance; "debiased", as `ugw.debiased`, with one self term for each
    space; or `ugw.Method(name, init=, loss=, fused=, cone=)`.
    rho, eps, solver: as for `ugw.solve` and `ugw.solve_conic`, one for all pairs. "auto": rho = 1, inf for "gw";
    eps = 1e-2, 0 for "cgw".
    names: one for each space; for two lists a pair of lists.
    n_jobs: processes, each with one thread; None: what `joblib.parallel_config` says, which may be a cluster.
    checkpoint: a folder for finished blocks; the same call goes on from there, and ends with the same numbers.
    progress: show a bar.

    Warns once (ConvergenceWarning) if a pair did not converge; `result.check()` raises. Pairs that fail are named by
    `ugw.Incomplete`, whose `result` has all others.

    >>> import numpy as np, ugw
    >>> rng = np.random.default_rng(0)
    >>> spaces = [ugw.Space.from_points(rng.random((n, 2))) for n in (5, 8, 6)]
    >>> d = ugw.pairwise(spaces, method="cgw", names=["a", "b", "c"])
    >>> d, d.values.shape, bool((d.distances == d.distances.T).all())
    (PairwiseResult(cgw, 3 × 3, all converged), (3, 3), True)
    """
    chosen = method if isinstance(method, Method) else Method(method)
    sides = read(spaces, spaces_y, names)
    given = chosen.given(rho, eps, solver)
    _check(chosen, given, sides)
    job = Job.of(chosen, given, sides)
    kept = None if checkpoint is None else Checkpoint.open(checkpoint, job.digests, {"method": chosen.name, **given})
    matrix = Matrix(job)
    said = _run(matrix, kept, n_jobs, progress=progress)
    result = matrix.result()
    if said is not None:
        more = f"; finished blocks are in {kept.folder}, the same call goes on from there" if kept is not None else ""
        raise Incomplete(f"{said}{more}; `result` of this error has all that was solved", result)
    if not bool(result.converged.all()):
        warnings.warn(result.message, ConvergenceWarning, stacklevel=2)
    return result


def _check(method: Method, given: Given, sides: tuple[Side, Side]) -> None:
    """Refuse what can be known to be wrong before any work."""
    if given["solver"] is not None:
        looks_on = plain(given["solver"])
        if getattr(looks_on, "progress", False) or getattr(looks_on, "callback", None) is not None:
            raise InputError(
                "a solver of pairwise must have no progress and no callback: write pairwise(progress=True)"
            )
    check_masses(*sides, given)
    x, y = (max(side.spaces, key=lambda space: space.n) for side in sides)
    method.recipe.check(x, y, given)
    if given["init"] == "linear":
        for side in sides:
            for i, space in enumerate(side.spaces):
                if space.point_tensor is None:
                    raise InputError(
                        f'init="linear" needs spaces made by Space.from_points, got {side.label(i)} without'
                    )


def _run(matrix: Matrix, kept: Checkpoint | None, n_jobs: int | None, *, progress: bool) -> str | None:
    """Solve the blocks that are not done; returns what went wrong, if something did."""
    blocks = matrix.job.blocks
    done = {} if kept is None else kept.done(blocks)
    for k, columns in done.items():
        matrix.add(blocks[k], columns, [])
    # The largest first: at the end no worker waits long for another.
    left = sorted((k for k in range(len(blocks)) if k not in done), key=lambda k: -blocks[k].work)
    try:
        with _bar(blocks, done, shown=progress) as tick:
            for k, (columns, failed) in outcomes(left, matrix.job.task, n_jobs):
                matrix.add(blocks[k], columns, failed)
                if kept is not None and not failed:
                    kept.keep(k, blocks[k], columns)
                tick(blocks[k])
    except WorkersDied as error:
        return str(error)
    except ModuleNotFoundError as error:
        if not missing_package(error):
            raise
        return f"a worker cannot import {error.name}: install ugw {version()} where the workers run"
    except OSError as error:
        if kept is None:
            raise
        return f"checkpoint {kept.folder} cannot be written to: {error.strerror}"
    if matrix.failures:
        pair, text = matrix.failures[0]
        count = f", and {len(matrix.failures) - 1} more pairs" if len(matrix.failures) > 1 else ""
        return f"pair {pair}{count} could not be solved: {text}"
    return None


@contextmanager
def _bar(blocks: Sequence[Block], done: Mapping[int, Any], *, shown: bool) -> Iterator[Callable[[Block], None]]:
    """A function to tell about each block that is done; it moves a progress bar."""
    if not shown:
        yield lambda block: None
        return
    from tqdm.auto import tqdm

    before = sum(len(blocks[k].pairs) for k in done)
    left = sum(block.work for k, block in enumerate(blocks) if k not in done)
    start, worked = time.perf_counter(), 0.0
    look = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}, {rate_fmt}{postfix}]"
    total = sum(len(block.pairs) for block in blocks)
    with tqdm(total=total, initial=before, desc="ugw pairs", unit="pair", smoothing=0.0, bar_format=look) as bar:

        def tick(block: Block) -> None:
            nonlocal worked
            worked += block.work
            # Pairs differ: what is left goes by their work, not by their number.
            seconds = (time.perf_counter() - start) * (left - worked) / worked
            bar.set_postfix_str(f"{tqdm.format_interval(seconds)} left", refresh=False)
            bar.update(len(block.pairs))

        yield tick
