"""The `ugw` command: `ugw match` for files, `ugw demo` for a first picture, `ugw reproduce` for the paper."""

from __future__ import annotations

import math
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

from .._utils.output_folder import output_folder
from ..errors import InputError
from ..experiments import BEYOND, REPRODUCED
from ..initializers.names import INIT_NAMES
from .interrupt import INTERRUPTED, MESSAGE, exit_at_interrupt

# Whatever needs torch or NumPy is imported inside the commands: help and shell completion do without.


# -- errors and types of options ---------------------------------------------------------------------------


class _OneLineErrors(click.Group):
    """A click group that reports errors as one line on stderr with exit code 2, without a traceback."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run the command and exit with code 0 after success, 2 after an error, 130 after Ctrl-C.

        args, extra: as for `click.Command.main`.
        """
        extra["standalone_mode"] = False
        try:
            sys.exit(super().main(*args, **extra) or 0)
        except click.exceptions.NoArgsIsHelpError as error:
            _exit(error.format_message(), 2)
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx else "ugw"
            _exit_with_error(f"{error.format_message()} (see {path} --help)")
        except click.ClickException as error:
            _exit_with_error(error.format_message())
        except click.Abort:
            _exit(MESSAGE, INTERRUPTED)
        except (InputError, OSError) as error:
            _exit_with_error(str(error))
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and "memory" not in str(error):
                raise
            size = "n² + m² + several n·m numbers of 8 bytes"
            _exit_with_error(f"not enough memory: the distances and the plan take {size}")


def _exit_with_error(message: str) -> NoReturn:
    """Print "Error: " and the message, in one line, on stderr and exit with code 2."""
    _exit("Error: " + " ".join(message.split()), 2)


def _exit(line: str, code: int) -> NoReturn:
    """Print the line on stderr and exit with this exit code."""
    click.echo(line, err=True)
    sys.exit(code)


# Types of options: functions of the text on the command line that raise click.BadParameter.


def _folder_name(text: str) -> str:
    """Return the text, the value of --out, unchanged; raise click.BadParameter if it is empty."""
    if not text:
        raise click.BadParameter("expected the name of a folder, got '' (. is the working folder)")
    return text


def _parse_rho(text: str) -> float | tuple[float, ...]:
    """Return rho, one or two floats, for the text of --rho: a number, inf, or two of these separated by a comma.

    Two are for source and target. Raises click.BadParameter for other texts.
    """
    try:
        parts = tuple(float(part) for part in text.split(","))
    except ValueError:
        parts = ()
    if len(parts) not in (1, 2):
        raise click.BadParameter(f"expected a number, inf, or two of them as 0.5,inf, got {text!r}")
    return parts[0] if len(parts) == 1 else parts


def _eps_text(text: str) -> str:
    """Return the text of --eps unchanged; raise click.BadParameter unless it is a number, a percentage > 0, or auto."""
    try:
        number = 1.0 if text == "auto" else float(text.removesuffix("%"))
        is_valid = 0 < number < math.inf or not text.endswith("%")
    except ValueError:
        is_valid = False
    if not is_valid:
        raise click.BadParameter(f"expected a number, a percentage as 1%, or auto, got {text!r}")
    return text


def _out_option(files: str) -> Any:
    """Return the decorator that adds --out, the output folder, to a command. files: its contents, for the help text."""
    return _option("--out", type=_folder_name, default="out", metavar="DIR", help=f"Folder for {files}.")


_option = partial(click.option, show_default=True)
_VERSION_HELP = "Show the version and exit."


def _show_version(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - called by click
    """Print the version of ugw and exit if `value`, whether the option --version is given, is true."""
    if value and not context.resilient_parsing:
        from .._utils.version import version  # looking it up takes a while

        click.echo(f"ugw, version {version()}")
        context.exit()


@click.group(cls=_OneLineErrors, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help=_VERSION_HELP)
def main() -> None:
    """Unbalanced Gromov-Wasserstein: match point clouds, distance matrices and graphs of any total mass.

    \b
    ugw demo                     a first picture: GW beside UGW on imbalanced classes
    ugw reproduce outliers       an experiment of the paper; `ugw reproduce --help` lists them
    ugw match a.csv b.csv        match your own files
    ugw match --help             all options, with examples
    """  # noqa: D301 - click takes the control character as "do not wrap"


# -- ugw demo ----------------------------------------------------------------------------------------------


@main.command()
@_out_option("imbalanced.png")
def demo(out: str) -> None:
    """Compare balanced GW with UGW on classes of different masses, in about ten seconds.

    An ellipsoid and a ball in R^3, half of the mass each, are matched to an ellipse and a square in R^2 that
    have 30 % and 70 % of it, then 70 % and 30 %. Balanced GW must match the surplus of one class to the
    other; UGW leaves it unmatched. Prints a table and writes a picture.
    """
    with exit_at_interrupt():
        from .._utils.caller import convergence_warnings_ignored
        from .._utils.threads import single_thread
        from ..experiments import imbalanced

    with output_folder(Path(out), names=("imbalanced.png",)) as stage, single_thread():
        with convergence_warnings_ignored():  # the table shows it
            records = imbalanced.show(click.echo)
        imbalanced.figure(records).savefig(stage / "imbalanced.png", dpi=160)
    click.echo(f"wrote {Path(out, 'imbalanced.png')}")


# -- ugw reproduce -----------------------------------------------------------------------------------------


@main.command(no_args_is_help=True)
@click.argument("name", type=click.Choice(list(REPRODUCED)))
@_out_option("its files")
@click.option(
    "--tasks", metavar="NAMES", help="pu: some tasks, as surf-C:surf-A:0.1,surf-C:decaf-W:0.2; or substitute."
)
@click.option("--quick", is_flag=True, help="pu: 4 folds instead of 20 and 9 pairs of rho instead of 36.")
@click.option(
    "--jobs", type=int, metavar="N", help="pu: number of tasks that run at a time.  [default: one per core; on cuda 1]"
)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", help="pu: where it is solved.")
@click.option("--beyond", is_flag=True, help="pu: test better minima, conic plans, rho without a grid instead.")
def reproduce(
    name: str, out: str, tasks: str | None, *, quick: bool, jobs: int | None, device: str, beyond: bool
) -> None:
    """Run an experiment of the paper: print its numbers, write its picture and the numbers as JSON.

    \b
    imbalanced      classes of different masses: GW and UGW, as in `ugw demo`
    outliers        two moons with outliers: GW, UGW and unbalanced Wasserstein
    graphs          two planar graphs with shortest paths: UGW and GW
    graphs-partial  the same graphs: partial GW at the masses that UGW found
    eps-rho         the effect of eps and rho on a plan: communities with outliers
    cgw-local       CGW and UGW as a shape moves away from itself
    cgw-ratio       histograms of CGW/UGW for random spaces of 2, 3, 5 and 100 points
    tightness       frequency of equal plans in the relaxation to two: kernels of negative type and graphs
    pu              positive-unlabeled learning on Office-Caltech10, for which UGW_DATA names the data's folder;
                    finished tasks are stored in DIR/pu-tasks, and the same command continues after an interruption
    """  # noqa: D301 - click takes the control character as "do not wrap"
    module, files = BEYOND if beyond else REPRODUCED[name]
    extra: dict[str, Any] = {}
    if name == "pu":
        task_folder = Path(out, "pu-beyond-tasks" if beyond else "pu-tasks")
        extra = {"tasks": tasks, "quick": quick, "jobs": jobs, "task_folder": task_folder}
        if device != "cpu":  # other rounding, so its tasks are stored in another folder
            _check_cuda(beyond=beyond)
            extra |= {"device": device, "task_folder": task_folder.with_name(f"{task_folder.name}-{device}")}
    elif tasks is not None or quick or jobs is not None or beyond or device != "cpu":
        raise click.UsageError("--tasks, --quick, --jobs, --device and --beyond are for pu")
    with exit_at_interrupt():
        from .._utils.caller import convergence_warnings_ignored
        from .._utils.threads import single_thread

        run = import_module(f"ugw.experiments.{module}").reproduce
    try:
        # The tables show what did not converge, or the numbers are certified.
        with output_folder(Path(out), names=files) as stage, single_thread(), convergence_warnings_ignored():
            run(stage, click.echo, **extra)
    except KeyboardInterrupt:
        if name != "pu":
            raise
        folder = extra["task_folder"]
        _exit(f"Interrupted: finished tasks are in {folder}, the same command goes on from there", INTERRUPTED)
    click.echo(f"wrote {' and '.join(str(Path(out, file)) for file in files)}")


def _check_cuda(*, beyond: bool) -> None:
    """Raise click.UsageError if `ugw reproduce pu` cannot run on a GPU: with --beyond, or if torch has no GPU."""
    if beyond:
        raise click.UsageError("--beyond runs on the CPU alone, got --device cuda")
    with exit_at_interrupt():
        import torch

    if not torch.cuda.is_available():
        raise click.UsageError("--device cuda needs a GPU that torch can use, got none")


# -- ugw match ---------------------------------------------------------------------------------------------

_KINDS = click.Choice(["points", "distances"])
_SCALES = click.Choice(["none", "max", "mean"])


@main.command(no_args_is_help=True)
@click.argument("source")
@click.argument("target")
@_option(
    "--rho",
    type=_parse_rho,
    default="1",
    metavar="R | R1,R2",
    help="Penalty of unmatched mass, in squared distance; inf keeps a side's weights exactly "
    "(inf: balanced GW). Two values, as 0.5,inf, are for source and target.",
)
@_option(
    "--eps",
    type=_eps_text,
    default="1%",
    metavar="E | P% | auto",
    help="Entropy: smaller is sharper and slower, 0 is none. A percentage is relative to the mean "
    "distortion, so it does not depend on units. auto is 1%, as in `ugw.solve`.",
)
@click.option("--kind", type=_KINDS, help="What arrays hold. Needed for square ones.")
@click.option("--kind-source", type=_KINDS, help="The same, for the source alone.")
@click.option("--kind-target", type=_KINDS, help="The same, for the target alone.")
@click.option(
    "--metric",
    metavar="NAME",
    help="Distance between points: euclidean (default), sqeuclidean, "
    "cityblock, cosine, ... (those of scipy.spatial.distance.cdist).",
)
@_option("--scale", type=_SCALES, default="none", help="Divide each side's distances by their largest or their mean.")
@click.option(
    "--weights-source",
    metavar="FILE",
    help="Weights of the source's points, one number each, of any total mass. Default 1/n each.",
)
@click.option("--weights-target", metavar="FILE", help="The same for the target.")
@click.option(
    "--features-source",
    metavar="FILE",
    help="Features of the source's points, one row each. With those of the target and --alpha this is fused UGW.",
)
@click.option("--features-target", metavar="FILE", help="The same for the target.")
@click.option("--alpha", type=float, metavar="A", help="Weight of the squared distance between features.")
@_option("--init", type=click.Choice(INIT_NAMES), default="auto", help="Initial plan.")
@_option("--tol", metavar="T", type=float, default=1e-6, help="Stop at this relative change of the plan.")
@_option("--max-iter", type=int, default=1000, help="Stop after this many outer steps.")
@_out_option("plan.npz, summary.json and matching.png")
@click.option(
    "--report",
    metavar="FILE",
    help="Also write this .html file: an interactive page for any browser, which works offline. "
    "Needs plotly: pip install 'ugw[report]'.",
)
@click.option("--progress/--no-progress", default=False, help="Show a progress bar.")
@click.option("--quiet", "-q", is_flag=True, help="Print warnings and errors only.")
def match(**options: Any) -> None:
    """Match the points of SOURCE to those of TARGET by their distances within each.

    Each is a file: .npy, .npz or .csv, with one point per row or a matrix of distances, or a .graphml, .gml
    or .edgelist graph (shortest paths; edge lengths in the attribute `weight`, 1 without it). `file.npz:key`
    names one of several arrays. Computations are in double precision.

    \b
    Writes to --out, all or nothing:
      plan.npz      plan (n, m), source_marginal (n), target_marginal (m); instead of a plan too large to
                    store the ten largest entries of its rows: partners and masses (n, 10)
      summary.json  value, its terms, mass, status, options, parameters
                    (rho, eps and solver options as numbers), history
      matching.png  the matching; for two graphs, colors of the source transported to the target
    With --report FILE also an interactive page: where the mass of each point goes.

    \b
    Examples:
      ugw match cells_a.csv cells_b.csv --scale max --rho 0.1
      ugw match shape.npy other.npy --kind distances --eps 0.1%
      ugw match scan.npz:vertices model.npy --rho 0.5,inf      target's weights kept exactly
      ugw match a.csv b.csv --report report.html               a page for the browser
      ugw match a.graphml b.gml --rho inf                      balanced Gromov-Wasserstein
      ugw match a.csv b.csv --features-source fa.csv --features-target fb.csv --alpha 0.5

    A run that does not converge still writes its result, prints a warning and says so in summary.json.
    Exit code 0: done; 2: bad input, one line says what; 130: interrupted.
    """  # noqa: D301
    with exit_at_interrupt():
        from .._utils.caller import convergence_warnings_ignored
        from .match import Options, run

    parsed = Options(**options)
    with convergence_warnings_ignored():  # printed below in one line
        result, report = run(parsed)
    if not result.converged:
        click.echo(f"Warning: not converged: {result.message}", err=True)
    if not parsed.quiet:
        click.echo(report)
