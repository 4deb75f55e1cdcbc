"""Markdown page and log–log plots of the measurements, with targets and missed targets."""

import math
import os
import platform
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

import ugw
from ugw._utils.size_class import THRESHOLDS

from . import measure, targets

OURS = "ugw, to the same objective"  # as the fastest other library
WHOLE = "ugw, to convergence"
LOOKS = {
    OURS: ("C3", "o"),
    WHOLE: ("C3", "."),
    "POT": ("C0", "s"),
    "POT (torch)": ("C9", "v"),
    "unbalancedgw (log)": ("C2", "^"),
}
OTHERS = [("C1", "D"), ("C4", "P"), ("C5", "X"), ("C6", "<"), ("C7", ">")]


def hardware():
    """Return the machine and the versions of a measurement."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="utf-8", errors="ignore").splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return {
        "cpu": model or platform.machine(), "cores": os.cpu_count(), "gpu": gpu, "python": platform.python_version(),
        "torch": torch.__version__, "numpy": np.__version__, "ugw": ugw.__version__,
        "compiled": ugw.show_config()["compiled"],
    }  # fmt: skip


def number(value, digits=3):
    """Format a number with 3 digits, or – for None."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return f"{value:.{digits}g}"


def ratio(value):
    if value is None:
        return "not reached"
    return f"**{value:.2f}×**" if value >= 1 else f"{value:.2f}×"


def dense_table(rows):
    """Return one table line for each row and peer."""
    lines = [
        "| row | library | objective | s | steps | ugw, s (step) | ratio | MiB |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in rows.items():
        for peer, peer_row in row.get("peers", {}).items():
            star = " ←" if peer == row.get("fastest") else ""
            if "reason" in peer_row:
                lines.append(f"| {name} | {peer} | {peer_row['reason']} | | | | | |")
                continue
            if "rate" in peer_row:
                lines.append(
                    f"| {name} | {peer} | {peer_row['rate']:.2f} Tpairs/s | {number(peer_row['seconds'])} | | | | |"
                )
                continue
            time_and_step = f"{number(peer_row['our_seconds'])} ({peer_row.get('our_step') or '–'})"
            other = "" if peer_row["same"] else " (different problem)"
            note = " (time limit)" if peer_row.get("stopped") else ""
            lines.append(
                f"| {name} | {peer}{star}{other} | {peer_row['objective']:.9f} | {number(peer_row['seconds'])}{note} | "
                f"{peer_row.get('steps', '–')} | {time_and_step} | {ratio(peer_row['ratio'])} | "
                f"{number(peer_row['memory'])} |"
            )
    return lines


def our_table(rows):
    """Return the table of the times of ugw: initialization, steps, seconds per step."""
    lines = [
        "| row | objective | difference to the best | s | initialization, s | steps | s per step | MiB | status |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for name, row in rows.items():
        ours = row.get("ours")
        if ours is None or "objective" not in ours:
            text = row.get("reason") or ", ".join(f"{k} {number(v)}" for k, v in row["measured"].items())
            lines.append(f"| {name} | {text} | | | | | | | |")
            continue
        worse = row["measured"].get("worse")
        worse = "–" if worse is None else f"{worse:+.1e}"
        lines.append(
            f"| {name} | {ours['objective']:.9f} | {worse} | {number(ours['total'])} | "
            f"{number(ours.get('start'))} | {ours['steps']} | {number(ours.get('per_step'))} | "
            f"{number(ours['memory'])} | {ours['status']} |"
        )
    return lines


def target_table(rows):
    lines = ["| problem | row | target | measured | met |", "|---|---|---:|---:|---|"]
    for target in targets.TARGETS:
        for name, value, is_met in target.check(rows):
            text = {True: "yes", False: "**NO**", None: "not measured"}[is_met]
            got = "not reached" if value is None and is_met is False else number(value)
            if is_met is None and rows.get(name, {}).get("reason"):
                text = rows[name]["reason"]
            lines.append(f"| {target.work} | {name} | {target.text} | {got} | {text} |")
    return lines


def series(rows):
    """(kind, parameters, solver) → [(n, seconds)]: peers to their objectives, ugw to the fastest's and to the end."""
    curves = defaultdict(list)
    for name, row in rows.items():
        kind = " ".join(name.split()[:2])
        if kind not in targets.GROWTH or "n" not in row:
            continue
        setting = f"rho {row['rho']:g}, eps {row['eps']:g}"
        if "total" in row.get("ours", {}) and row["ours"].get("status") != "MAX_ITER":  # not where it was cut short
            curves[kind, setting, WHOLE].append((row["n"], row["ours"]["total"]))
        ours = row.get("peers", {}).get(row.get("fastest"), {}).get("our_seconds")
        if ours is not None:
            curves[kind, setting, OURS].append((row["n"], ours))
        for peer, peer_row in row.get("peers", {}).items():
            if "seconds" in peer_row and not peer_row.get("stopped"):
                curves[kind, setting, peer].append((row["n"], peer_row["seconds"]))
    return {key: sorted(points) for key, points in curves.items()}


def exponent(points):
    """Return the slope of log seconds against log n; None for fewer than two sizes."""
    n, seconds = np.log(np.array(points, dtype=float)).T
    return float(np.polyfit(n, seconds, 1)[0]) if len(set(n)) > 1 else None


def growth_table(rows):
    lines = [
        "| path | setting | solver | sizes | measured exponent | exponent of the work |",
        "|---|---|---|---|---:|---:|",
    ]
    for (kind, setting, solver), points in series(rows).items():
        slope = exponent(points)
        if slope is not None:
            sizes = ", ".join(str(n) for n, _ in points)
            lines.append(f"| {kind} | {setting} | {solver} | {sizes} | {slope:.2f} | {targets.GROWTH[kind]:g} |")
    return lines


def caveat(rows):
    """Return a sentence about CPU rows that are older than the compiled steps, which now solve their sizes; or ""."""
    old = [
        name
        for name, row in rows.items()
        if name.startswith("cpu")
        and "compiled" not in row.get("machine", {})
        and row.get("n", math.inf) ** 2 <= THRESHOLDS.max_compiled_entries
    ]
    if not old:
        return ""
    return (
        f" Rows of small problems ({', '.join(old)}) were measured before compiled steps existed; docs/performance.md "
        "has later times of such problems."
    )


def page(rows, machines):
    """Return the whole page."""
    hardware_lines = ["; ".join(f"{k} {v}" for k, v in machine.items()) for machine in machines]
    peers = sorted(
        {f"{n} {t['version']}" for r in rows.values() for n, t in r.get("peers", {}).items() if t.get("version")}
    )
    return "\n".join([
        "# Comparison with other libraries", "",
        *(f"- {line}" for line in hardware_lines), f"- {'; '.join(peers)}", "",
        "CPU: one process, one thread, float64, processor time of that thread; streaming on two threads, wall-clock "
        "time. GPU: float32, wall-clock time. Time of "
        f"another library: until its objective is within {measure.WITHIN:g} (relative) of its final one. Time of ugw: "
        "until it reaches that objective. Ratio: the first time divided by the second. All plans are evaluated by "
        f"`ugw.objective` in float64. ← marks the fastest library that solves the same problem.{caveat(rows)}", "",
        "## Targets", "", *target_table(rows), "",
        "## Comparison with each library", "", *dense_table(rows), "",
        "## Complete calls of ugw", "", *our_table(rows), "",
        "## Growth: seconds ∝ n^exponent", "", *growth_table(rows), "",
    ])  # fmt: skip


def plots(rows, folder):
    """Draw one log–log plot for each path with two sizes or more. Returns the files; none without matplotlib."""
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        return []
    by_kind = defaultdict(dict)
    for (kind, setting, solver), points in series(rows).items():
        if len(points) > 1:
            by_kind[kind].setdefault(setting, {})[solver] = points
    files = []
    for kind, settings in by_kind.items():
        columns = min(3, len(settings))
        lines = math.ceil(len(settings) / columns)
        size = 4.2 * columns, 3.4 * lines + 0.5
        figure, axes = plt.subplots(lines, columns, figsize=size, squeeze=False, layout="constrained")
        for axis, (setting, solvers) in zip(axes.flat, sorted(settings.items()), strict=False):
            draw(axis, setting, solvers, targets.GROWTH[kind])
        for axis in list(axes.flat)[len(settings) :]:
            axis.set_visible(False)
        figure.suptitle(kind)
        labeled = {}
        for axis in axes.flat[: len(settings)]:
            handles, labels = axis.get_legend_handles_labels()
            labeled |= dict(zip(labels, handles, strict=True))
        look = {"ncols": min(len(labeled), 2 + 2 * columns), "frameon": False}
        figure.legend(labeled.values(), labeled, loc="outside lower center", **look)
        files.append(Path(folder) / f"{kind.replace(' ', '-')}.png")
        figure.savefig(files[-1], dpi=90)
        plt.close(figure)
    return files


def draw(axis, setting, solvers, slope):
    spare = iter(OTHERS)
    for solver, points in solvers.items():
        color, marker = LOOKS.get(solver) or next(spare)
        n, seconds = zip(*points, strict=True)
        style = {"linewidth": 2.5 if solver == OURS else 1.2, "linestyle": "--" if solver == WHOLE else "-"}
        axis.loglog(n, seconds, color=color, marker=marker, label=solver, **style)
    n, seconds = (np.array(v, dtype=float) for v in zip(*next(iter(solvers.values())), strict=True))
    axis.loglog(n, seconds[0] * (n / n[0]) ** slope, color="0.6", linestyle=":", label=f"n^{slope:g}")
    axis.set_xticks(n, [f"{v:g}" for v in n])
    axis.set_xticks([], minor=True)
    axis.yaxis.set_minor_formatter("")
    axis.set(title=setting, xlabel="points", ylabel="seconds")
