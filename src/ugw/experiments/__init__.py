"""The experiments of the paper, each with its numbers and its picture."""

# Experiments of `ugw reproduce`: name → module with `reproduce(folder, echo)`, and the files that it writes.
REPRODUCED = {
    "imbalanced": ("imbalanced", ("imbalanced.png", "imbalanced.json")),
    "outliers": ("outliers", ("outliers.png", "outliers.json")),
    "graphs": ("graphs", ("graphs.png", "graphs.json")),
    "graphs-partial": ("graphs_partial", ("graphs-partial.png", "graphs-partial.json")),
    "eps-rho": ("eps_rho", ("eps-rho.png", "eps-rho.json")),
    "cgw-local": ("cgw_local", ("cgw-local.png", "cgw-local.json")),
    "cgw-ratio": ("cgw_ratio", ("cgw-ratio.png", "cgw-ratio.json")),
    "tightness": ("tightness", ("tightness.png", "tightness.json")),
    "pu": ("pu", ("pu.png", "pu.json")),
}
# Module and files of `ugw reproduce pu --beyond`.
BEYOND = ("pu_beyond", ("pu-beyond.json",))
