"""CGW and UGW of a cloud and a shifted copy: the properties of the figure."""

import numpy as np
import pytest

from ugw.experiments import cgw_local


@pytest.fixture(scope="module")
def curves():
    return cgw_local.run(n=5, rhos=(0.1, 10.0), shifts=(0.0, 0.05, 0.4))


def test_cgw_is_below_ugw_and_both_start_at_0(curves):
    assert curves.certified
    assert (curves.cgw <= curves.ugw + 1e-9).all()
    np.testing.assert_allclose(curves.cgw[:, 0], 0.0, atol=1e-7)
    np.testing.assert_allclose(curves.ugw[:, 0], 0.0, atol=1e-7)
    assert (np.diff(curves.cgw, axis=1) > 0).all()


def test_close_to_each_other_and_for_a_large_rho_they_agree(curves):
    ratio = curves.cgw[:, 1:] / curves.ugw[:, 1:]
    assert (ratio > 0.5).all()
    assert ratio[0, 0] > 0.95  # a small shift
    assert (ratio[1] > 0.97).all()  # a large rho


def test_the_local_figure_has_a_panel_for_each_rho(curves):
    assert [ax.get_title() for ax in cgw_local.figure(curves).axes] == ["ρ = 0.1", "ρ = 10"]
    assert len(cgw_local.lines(curves)) == 5
