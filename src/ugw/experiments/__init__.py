"""The paper's experiments, each with its numbers and its picture."""

# What `ugw reproduce` knows: name → module with `reproduce(folder, echo)`, and the files that writes.
REPRODUCED = {
    "cgw-local": ("cgw_local", ("cgw-local.png", "cgw-local.json")),
    "cgw-ratio": ("cgw_ratio", ("cgw-ratio.png", "cgw-ratio.json")),
}
