"""The demo: GW mixes imbalanced classes, UGW does not."""

import matplotlib as mpl
import numpy as np
import pytest

from ugw.experiments import imbalanced

mpl.use("Agg")


@pytest.fixture(scope="module")
def records():
    return imbalanced.run(n=40, eps=0.02)


def test_both_methods_run_on_both_mixtures(records):
    assert [(r.share, r.method) for r in records] == [(0.3, "GW"), (0.3, "UGW"), (0.7, "GW"), (0.7, "UGW")]
    assert all(r.result.converged for r in records)
    assert all(r.seconds > 0 for r in records)


def test_gw_must_move_a_fifth_across_and_ugw_keeps_the_classes_apart(records):
    for record in records:
        if record.method == "GW":
            assert record.across >= 0.2 - 1e-6  # .5 against .3: all weights are kept, so .2 must cross
            assert record.result.mass == pytest.approx(1)
        else:
            assert record.across < 0.01
            assert 0.8 < record.result.mass < 1


def test_ugw_costs_less_than_gw(records):
    # A balanced plan is allowed in UGW too, where it pays nothing for its marginals.
    for gw, unbalanced in (records[:2], records[2:]):
        assert unbalanced.result.value < gw.result.value


def test_the_legend_names_the_lines(records):
    texts = [text.get_text() for text in imbalanced.figure(records).legends[0].get_texts()]
    assert texts[2:] == ["a point's largest plan entry", "across classes"]


def test_the_callback_receives_each_record_when_it_is_done():
    reported = []
    records = imbalanced.run(n=20, eps=0.02, shares=(0.3,), report=reported.append)
    assert reported == records


def test_a_row_stands_under_its_header(records):
    for record in records:
        row = record.line
        assert len(row) == len(imbalanced.HEADER)
        assert f"{record.result.value:.4f}" in row
        assert " yes " in row
        assert "-0.0000" not in row


def test_the_figure_has_a_panel_for_each_record_with_its_numbers(records):
    panels = imbalanced.figure(records).axes
    assert len(panels) == 4
    for panel, record in zip(panels, records, strict=True):
        panel_text = " ".join(text.get_text() for text in panel.texts)
        assert f"value {record.result.value:.3f}" in panel_text
        assert f"{record.across:.0%} across classes" in panel_text


def test_the_target_is_mirrored_at_most(records):
    for record in records:
        drawn, original = imbalanced.reflected_target(record), record.target.points
        assert np.array_equal(np.abs(drawn), np.abs(original))
        assert np.array_equal(drawn[:, 0], original[:, 0])
