"""Files of earlier versions, in which some arrays had other names and there were no parameters."""

import numpy as np
import pytest

import ugw
from ugw.results.io import read_npz

NEW_TO_OLD = {
    "lift_kernel_error": "lift_error",
    "lift_kernel_tolerance": "lift_wanted",
    "lift_value_slack": "lift_slack",
    "lift_kernel_rank": "lift_rank",
    "lift_is_metric": "lift_metric",
    "lift_distance_exponent": "lift_exponent",
    "lift_radius_power": "lift_power",
    "row_sums": "rows_sum",
    "col_sums": "cols_sum",
    "right_product": "moved",
}


def old_name(name):
    """The name of an array in a file of an earlier version."""
    for new, old in NEW_TO_OLD.items():
        name = name.replace(new, old)
    return name.replace("previous_plan", "other").replace("_log_plan_", "_log_")


@pytest.mark.parametrize("kind", ["stored", "streaming", "conic", "partial", "batch"])
def test_files_of_earlier_versions_load(kind, tmp_path):
    rng = np.random.default_rng(0)
    x, y = (ugw.Space.from_points(rng.random((n, 2)), metric="sqeuclidean") for n in (7, 9))
    streaming = ugw.AlternateMin(inner=ugw.Sinkhorn(method="streaming"))
    result = {
        "stored": lambda: ugw.solve(x, y),
        "streaming": lambda: ugw.solve(x, y, solver=streaming),
        "conic": lambda: ugw.solve_conic(x, y),
        "partial": lambda: ugw.solve(x, y, rho=ugw.TV(0.3)),
        "batch": lambda: ugw.solve(ugw.Space.stack([x, y]), ugw.Space.stack([y, x])),
    }[kind]()
    result.save(tmp_path / "new.npz")
    arrays = {old_name(name): array for name, array in read_npz(tmp_path / "new.npz").items() if name != "parameters"}
    np.savez(tmp_path / "old.npz", **arrays)
    loaded = type(result).load(tmp_path / "old.npz")
    assert repr(loaded) == repr(result)
    assert loaded.parameters == {}
    plans = [r.plan if kind != "streaming" else r.plan.dense() for r in (loaded, result)]
    np.testing.assert_array_equal(*plans)
    if kind == "conic":
        assert (loaded.distance, loaded.is_metric) == (result.distance, result.is_metric)
