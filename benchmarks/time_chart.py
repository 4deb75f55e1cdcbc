"""Draw docs/images/time-against-n.png from benchmarks/results/compare.json: seconds against n for four libraries.

    python -m benchmarks.time_chart

The seconds of a peer are those until its objective is within 1e-6 (relative) of its final one. The solid line of ugw is
a complete default call; the thin line is the time until it reaches the objective of the fastest peer.
"""

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "compare.json"
TARGET = HERE.parent / "docs" / "images" / "time-against-n.png"
RHO, EPS = 1.0, 0.01  # the setting of the dense rows that was measured on both machines
COLORS = {"ugw": "#D55E00", "POT": "#0072B2", "unbalancedgw": "#009E73", "fugw": "#7F3C8D"}
PEERS = {  # library -> its rows in the results, in order of preference
    "POT": ("POT", "POT (torch)"),
    "unbalancedgw": ("unbalancedgw (exp)", "unbalancedgw (log)"),
    "fugw": ("fugw",),
}
Curve = list[tuple[int, float]]  # (n, seconds), sorted by n


def dense_curves(rows: dict[str, dict], device: str) -> dict[str, Curve]:
    """Return the curve of each library on a device, and that of ugw to the fastest peer's objective as "reached"."""
    curves: dict[str, Curve] = {name: [] for name in ("ugw", *PEERS, "reached")}
    for name, row in sorted(rows.items(), key=lambda item: item[1].get("n", 0)):
        if not name.startswith(f"{device} dense") or (row.get("rho", RHO), row.get("eps", EPS)) != (RHO, EPS):
            continue
        measured = {peer: peer_row for peer, peer_row in row["peers"].items() if "seconds" in peer_row}
        curves["ugw"].append((row["n"], row["ours"]["total"]))
        for library, keys in PEERS.items():
            curves[library] += [(row["n"], measured[key]["seconds"]) for key in keys if key in measured][:1]
        if measured:
            fastest = min(measured.values(), key=lambda peer_row: peer_row["seconds"])
            curves["reached"].append((row["n"], fastest["our_seconds"]))
    return curves


def streaming_curve(rows: dict[str, dict]) -> Curve:
    """Return the curve of converged streaming solves on a GPU."""
    return [(n, rows[f"cuda streaming n={n}"]["ours"]["total"]) for n in (100_000, 1_000_000)]


def draw_curve(axis: Axes, curve: Curve, color: str, label: str, **style: Any) -> None:
    """Draw one curve with its label at the right end."""
    if not curve:
        return
    sizes, seconds = zip(*curve, strict=True)
    axis.loglog(sizes, seconds, color=color, **{"marker": "o", "lw": 3.5, "ms": 10, **style})
    shift = {"unbalancedgw": 9, "POT": -9}.get(label, 0)  # in points: their curves nearly coincide on a CPU
    place = {"textcoords": "offset points", "xytext": (12, shift), "va": "center"}
    axis.annotate(label, (sizes[-1], seconds[-1]), color=color, fontsize=17, **place)


def format_seconds(value: float, _: int) -> str:
    """Return a tick label such as "0.1 s" or "1 min"."""
    return f"{value:g} s" if value < 60 else f"{value / 60:g} min"


def format_size(value: float, _: int) -> str:
    """Return a tick label such as "500" or "10 000"."""
    return f"{value:,.0f}".replace(",", "\u202f")  # narrow no-break space


def main() -> None:
    """Write the chart."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    figure, axes = plt.subplots(1, 2, figsize=(16, 6.4), layout="constrained", width_ratios=[1, 1.4])
    for axis, device in zip(axes, ("cpu", "cuda"), strict=True):
        curves = dense_curves(rows, device)
        for library, color in COLORS.items():
            draw_curve(axis, curves[library], color, library)
        draw_curve(axis, curves["reached"], COLORS["ugw"], "ugw, to the\nsame objective", lw=2, ls="--", marker="")
    draw_curve(axes[1], streaming_curve(rows), COLORS["ugw"], "ugw,\nstreaming", marker="s")
    axes[0].set_title("CPU, one thread, float64", fontsize=19, loc="left")
    axes[1].set_title("H200 GPU, float32", fontsize=19, loc="left")
    for axis, sizes, ticks in zip(
        axes, ((450, 4500), (800, 6e6)), ((500, 1000, 2000), (1e3, 1e4, 1e5, 1e6)), strict=True
    ):
        axis.set_xlim(*sizes)
        axis.set_xticks(ticks)
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(FuncFormatter(format_size))
        axis.set_yticks([0.1, 1, 10, 60])
        axis.yaxis.set_minor_locator(NullLocator())
        axis.yaxis.set_major_formatter(FuncFormatter(format_seconds))
        axis.set_ylim(0.05, 120)
        axis.set_xlabel("points in each space", fontsize=18)
        axis.tick_params(labelsize=17)
        axis.grid(which="major", color="0.9")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("time", fontsize=18)
    figure.savefig(TARGET, dpi=100)
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()
