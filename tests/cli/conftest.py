"""Inputs of the command line."""

import networkx
import numpy as np
import pytest


@pytest.fixture
def input_folder(tmp_path, monkeypatch):
    """A folder with inputs of every kind, and the working directory."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    a, b = rng.random((8, 2)), rng.random((9, 3))
    np.savetxt("a.csv", a, delimiter=",", header="x,y", comments="")
    np.save("b.npy", b)
    np.save("far.npy", np.linalg.norm(b[:, None] - b, axis=2))
    np.save("wide.npy", rng.random((7, 5)))
    np.savez("two.npz", a=a, b=b)
    np.savetxt("w8.csv", np.arange(8.0))
    np.save("f8.npy", rng.random((8, 1)))
    np.save("f9.npy", rng.random((9, 1)))
    np.savetxt("row8.csv", np.arange(8.0)[None], delimiter=",")
    np.savetxt("minus.csv", [1.0] * 7 + [-1.0])
    np.savetxt("nan.csv", [1.0] * 7 + [np.nan])
    np.save("zero.npy", np.zeros(8))
    np.save("square.npy", np.ones((8, 8)))
    np.save("pair.npy", np.ones((2, 8)))
    np.save("batch.npy", rng.random((2, 8, 3)))
    np.save("cube.npy", np.zeros((2, 8, 8)))
    np.save("number.npy", np.array(1.0))
    (tmp_path / "taken" / "plan.npz").mkdir(parents=True)
    (tmp_path / "folder.html").mkdir()
    networkx.write_graphml(networkx.cycle_graph(7), "g.graphml")
    networkx.write_gml(networkx.path_graph(6), "h.gml")
    networkx.write_graphml(networkx.DiGraph([(0, 1), (1, 2)]), "directed.graphml")
    networkx.write_edgelist(networkx.Graph([(0, 1), (2, 3)]), "parts.edgelist")
    return tmp_path
