"""The public function `pairwise`: values of all pairs of many spaces."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from .._utils.checks import check_bool
from .._utils.version import version
from ..errors import Incomplete, InputError
from ..initializers.multistart import base_solver
from ..results.base import warn_if_not_converged
from .blocks import Block
from .checkpoint import Checkpoint
from .executor import WorkersDied, is_missing_package, run_tasks
from .inputs import SpaceList, check_masses, read_spaces
from .job import PairwiseJob, ResultMatrix
from .methods import Method, Options, auto_eps_of_all_pairs
from .result import PairwiseResult


def pairwise(  # noqa: PLR0913 - objective, labels and execution are separate arguments
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
    """Solve all pairs of spaces, or each space with each of `spaces_y`; return matrices of values, masses and status.

    spaces: a list of single spaces of any sizes, a batch, or a dictionary of spaces by name. In one list each pair is
    solved once; a space whose distance to itself is exactly 0 (eps = 0, "cgw") is not solved with itself.
    method: "ugw"; "gw", balanced; "cgw", the conic distance; "debiased", as `ugw.debiased`, with one self term for each
    space; or `ugw.Method(name, init=, loss=, fused=, cone=)`.
    rho, eps, solver: as for `ugw.solve` and `ugw.solve_conic`, one for all pairs. "auto": rho = 1, inf for "gw";
    eps = `relative(1e-2)`, 1 % of the mean distortion of each pair; for "debiased" one number for all pairs, 1 % of the
    mean over all pairs; 0 for "cgw", and for `ugw.TV` and `ugw.Mass`.
    names: one for each space; for two lists a pair of lists.
    n_jobs: processes, each with one thread; None for the setting of `joblib.parallel_config`, which may be a cluster.
    checkpoint: a folder for finished blocks; the same call continues from there and returns the same numbers.
    progress: show a progress bar.

    Values are objectives, not roots; `distances` of the result are their roots, for "cgw" and "gw" with eps = 0.
    Warns once (ConvergenceWarning) if a pair did not converge; `result.check()` raises. If pairs fail, `ugw.Incomplete`
    is raised; its message names the first, and its `result` has all other pairs.

    >>> import numpy as np, ugw
    >>> rng = np.random.default_rng(0)
    >>> spaces = [ugw.Space.from_points(rng.random((n, 2))) for n in (5, 8, 6)]
    >>> d = ugw.pairwise(spaces, method="cgw", names=["a", "b", "c"])
    >>> d, d.values.shape, bool((d.distances == d.distances.T).all())
    (PairwiseResult(cgw, 3 × 3, all converged), (3, 3), True)
    """
    check_bool("progress", progress)
    chosen = method if isinstance(method, Method) else Method(method)
    sides = read_spaces(spaces, spaces_y, names)
    options = chosen.solve_options(rho, eps, solver)
    if chosen.name == "debiased" and isinstance(eps, str) and eps == "auto":
        options["eps"] = auto_eps_of_all_pairs(sides[0].spaces, sides[1].spaces, chosen.loss)
    solver_used = _check_options(chosen, options, sides)
    job = PairwiseJob.create(chosen, options | {"solver": solver_used}, sides)
    folder = None
    if checkpoint is not None:
        folder = Checkpoint.open(checkpoint, job.digests, {"method": chosen.name, **options})
    matrix = ResultMatrix(job)
    failure = _solve_blocks(matrix, folder, n_jobs, progress=progress)
    result = matrix.result()
    if failure is not None:
        hint = f"; finished blocks are in {folder.folder}, the same call goes on from there" if folder else ""
        raise Incomplete(f"{failure}{hint}; `result` of this error has all that was solved", result)
    return warn_if_not_converged(result)


def _check_options(method: Method, options: Options, sides: tuple[SpaceList, SpaceList]) -> Any:
    """Return the solver of all pairs, the default for None; raise for options with which a pair cannot be solved.

    sides: the two lists of spaces.
    """
    if options["solver"] is not None:
        inner = base_solver(options["solver"])
        if getattr(inner, "progress", False) or getattr(inner, "callback", None) is not None:
            raise InputError(
                "a solver of pairwise must have no progress and no callback: write pairwise(progress=True)"
            )
    check_masses(*sides, options["rho"])
    x, y = (max(side.spaces, key=lambda space: space.n) for side in sides)
    solver = method.spec.check(x, y, options)
    if options["init"] == "linear":
        for side in sides:
            for i, space in enumerate(side.spaces):
                if space.point_tensor is None:
                    got = f"{side.label(i)} without"
                    raise InputError(f'init="linear" needs spaces made by Space.from_points, got {got}')
    return solver


def _solve_blocks(
    matrix: ResultMatrix, checkpoint: Checkpoint | None, n_jobs: int | None, *, progress: bool
) -> str | None:
    """Add the results of all batches of pairs to `matrix`: read from the checkpoint, or solved and stored there.

    Returns None, or if pairs failed, workers ended or a file could not be written, one sentence about it.
    """
    blocks = matrix.job.blocks
    done = {} if checkpoint is None else checkpoint.read_blocks(blocks)
    for k, columns in done.items():
        matrix.add_block(blocks[k], columns, [])
    # The block with the most work first, so that no worker waits long for another at the end.
    remaining = sorted((k for k in range(len(blocks)) if k not in done), key=lambda k: -blocks[k].work)
    try:
        with _progress_bar(blocks, done, show=progress) as advance:
            for k, (columns, failures) in run_tasks(remaining, matrix.job.make_task, n_jobs):
                matrix.add_block(blocks[k], columns, failures)
                if checkpoint is not None and not failures:
                    checkpoint.write_block(k, blocks[k], columns)
                advance(blocks[k])
    except WorkersDied as error:
        return str(error)
    except ModuleNotFoundError as error:
        if not is_missing_package(error):
            raise
        return f"a worker cannot import {error.name}: install ugw {version()} where the workers run"
    except OSError as error:
        if checkpoint is None:
            raise
        return f"checkpoint {checkpoint.folder} cannot be written to: {error.strerror}"
    if matrix.failures:
        pair, text = matrix.failures[0]
        count = f", and {len(matrix.failures) - 1} more pairs" if len(matrix.failures) > 1 else ""
        return f"pair {pair}{count} could not be solved: {text}"
    return None


@contextmanager
def _progress_bar(blocks: Sequence[Block], done: Mapping[int, Any], *, show: bool) -> Iterator[Callable[[Block], None]]:
    """Yield a function that adds a finished block to the progress bar; unless `show`, it does nothing.

    done: the blocks finished before, by index in `blocks`.
    """
    if not show:
        yield lambda block: None
        return
    from tqdm.auto import tqdm

    n_done = sum(len(blocks[k].pairs) for k in done)
    total_work = sum(block.work for k, block in enumerate(blocks) if k not in done)
    start, finished_work = time.perf_counter(), 0.0
    bar_format = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}, {rate_fmt}{postfix}]"
    total = sum(len(block.pairs) for block in blocks)
    with tqdm(total=total, initial=n_done, desc="ugw pairs", unit="pair", smoothing=0.0, bar_format=bar_format) as bar:

        def advance(block: Block) -> None:
            """Add the pairs of a finished block to the progress bar, and show the estimated remaining time."""
            nonlocal finished_work
            finished_work += block.work
            # By work and not by the number of pairs, which take different times.
            seconds = (time.perf_counter() - start) * (total_work - finished_work) / finished_work
            bar.set_postfix_str(f"{tqdm.format_interval(seconds)} left", refresh=False)
            bar.update(len(block.pairs))

        yield advance
