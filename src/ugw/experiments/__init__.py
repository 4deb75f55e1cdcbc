"""The experiments of the paper, each with its numbers and its picture."""

_NAMES = (
    "imbalanced", "outliers", "graphs", "graphs-partial", "eps-rho", "cgw-local", "cgw-ratio", "tightness", "pu",
)  # fmt: skip
# Experiments of `ugw reproduce`: name → module with `reproduce(folder, echo)`, and the files that it writes.
REPRODUCED = {name: (name.replace("-", "_"), (f"{name}.png", f"{name}.json")) for name in _NAMES}
# Module and files of `ugw reproduce pu --beyond`.
BEYOND = ("pu_beyond", ("pu-beyond.json",))
