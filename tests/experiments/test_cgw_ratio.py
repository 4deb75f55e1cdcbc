"""Ratios of CGW and UGW of random pairs."""

import json

from ugw.experiments import cgw_ratio


def test_ratios_are_at_most_1():
    ratios = cgw_ratio.run(3, 6)
    assert ratios.certified
    assert ratios.values.shape == (6,)
    assert (ratios.values > 0.3).all()
    assert (ratios.values <= 1.0 + 1e-9).all()


def test_reproducing_the_ratios_writes_them_for_each_size(tmp_path):
    said = []
    cgw_ratio.reproduce(tmp_path, said.append, {2: 3})
    written = json.loads((tmp_path / "cgw-ratio.json").read_text(encoding="utf-8"))
    assert len(written["ratios"]["2"]) == 3
    assert len(said) == 2
