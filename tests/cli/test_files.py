"""Reading of arrays and graphs from files, and errors of one line."""

import networkx
import numpy as np
import pytest

from ugw import InputError
from ugw.cli.files import is_graph, read_array, read_graph

TABLE = np.array([[0.0, 1.5], [2.0, -3.0], [4.0, 5.0]])


@pytest.mark.parametrize(
    "text",
    [
        "0,1.5\n2,-3\n4,5\n",
        "x,y\n0,1.5\n2,-3\n4,5\n",
        "\ufeff# by hand\nx;y\n\n0;1.5\n2;-3e0\n4;5",
        '"x"\t"y"\n"0"\t"1.5"\r\n2\t-3\r\n4\t5\r\n',
        "x_1,Länge (%)\n0,1.5\n2,-3\n# a note\n4,5\n",
        "e,inf or nan\n0,1.5\n2,-3\n4,5\n",  # names may look a little like numbers
    ],
)
def test_a_csv_is_read_in_every_common_format(tmp_path, text):
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8", newline="")
    assert np.array_equal(read_array(str(path)), TABLE)


def test_one_column_keeps_its_shape(tmp_path):
    (tmp_path / "w.csv").write_text("weight\n1\n2\n")
    assert read_array(str(tmp_path / "w.csv")).shape == (2, 1)


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
def test_numbers_become_float64(tmp_path, dtype):
    np.save(tmp_path / "a.npy", np.arange(6).reshape(3, 2).astype(dtype))
    assert read_array(str(tmp_path / "a.npy")).dtype == np.float64


def test_an_array_of_an_npz_is_named_where_there_are_several(tmp_path):
    np.savez(tmp_path / "one.npz", only=TABLE)
    np.savez(tmp_path / "two.npz", a=TABLE, b=TABLE + 1)
    assert np.array_equal(read_array(str(tmp_path / "one.npz")), TABLE)
    assert np.array_equal(read_array(f"{tmp_path / 'two.npz'}:b"), TABLE + 1)
    with pytest.raises(InputError, match=r"several arrays \(a, b\), say which: .*two.npz:a"):
        read_array(str(tmp_path / "two.npz"))
    with pytest.raises(InputError, match="no array 'c', it holds a, b"):
        read_array(f"{tmp_path / 'two.npz'}:c")


def write_invalid_files(folder):
    np.save(folder / "object.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(folder / "object.npz", a=np.array([{}], dtype=object))
    np.save(folder / "words.npy", np.array(["a"]))
    np.save(folder / "complex.npy", np.array([1j]))
    np.save(folder / "yes.npy", np.array([True]))
    np.save(folder / "none.npy", np.empty((0, 2)))
    np.savez(folder / "none.npz")
    for name, text in {
        "empty.csv": "",
        "blank.csv": "\n\n# nothing\n",
        "names.csv": "x,y\n",
        "word.csv": "x,y\n1,2\n3,oops\n",
        "hole.csv": "1,2\n3,\n",
        "ragged.csv": "1,2\n3\n",
        "missing.csv": "NA,NA\n1,2\n3,4\n",
        "missing2.csv": "1,2\nNA,NA\n3,4\n",
        "null.csv": "x,null\n1,2\n",
        "dashes.csv": "-,-\n1,2\n",
        "sheet.csv": "#N/A,#N/A\n1,2\n",
        "sheet2.csv": "1,2\n#DIV/0!,3\n",
        "comma.csv": "1,5;2,5\n3;4\n",
        "comma2.csv": "x;y\n3;4\n1,5e3;2\n",
        "index.csv": ",x,y\n0,1,2\n1,3,4\n",
        "index2.csv": ",0,1\n0,1,2\n1,3,4\n",
        "index3.csv": '"","x","y"\n"1",1,2\n',
        "index4.csv": "x,y\n0,1,2\n1,3,4\n",
        "unnamed.csv": "x,,z\n0,1,2\n",
        "garbage.npy": "hello",
        "garbage.npz": "hello",
        "table.txt": "1 2",
    }.items():
        (folder / name).write_text(text)
    (folder / "latin.csv").write_bytes("\xe9,1\n".encode("latin-1"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.npy", "no such file"),
        (".", "got a folder"),
        ("empty.csv", "the file is empty"),
        ("blank.csv", "holds no numbers"),
        ("names.csv", "names and no numbers"),
        ("word.csv", "line 3: expected a number, got 'oops'"),
        ("hole.csv", "line 2: expected a number, got ''"),
        ("ragged.csv", "line 2: expected 2 numbers as above, got 1"),
        ("missing.csv", "line 1: expected numbers or column names, got 'NA'"),
        ("missing2.csv", "line 2: expected a number, got 'NA'"),
        ("null.csv", "line 1: expected numbers or column names, got 'null'"),
        ("dashes.csv", "line 1: expected numbers or column names, got '-'"),
        ("sheet.csv", "line 1: expected numbers or column names, got '#N/A'"),
        ("sheet2.csv", "line 2: expected a number, got '#DIV/0!'"),
        ("comma.csv", r"line 1: expected numbers or column names, got '1,5' \(numbers need a decimal point\)"),
        ("comma2.csv", r"line 3: expected a number, got '1,5e3' \(numbers need a decimal point\)"),
        ("index.csv", "line 1: the first field is empty, .* index, leave it out"),
        ("index2.csv", "line 1: the first field is empty"),
        ("index3.csv", "line 1: the first field is empty"),
        ("index4.csv", "line 1: 2 names above rows of 3 numbers"),
        ("unnamed.csv", "line 1: expected numbers or column names, got ''"),
        ("latin.csv", "UTF-8"),
        ("object.npy", "need pickle and are not loaded"),
        ("object.npz", "need pickle and are not loaded"),
        ("garbage.npy", "not a .npy file of plain numbers"),
        ("garbage.npz", "not a .npz file of plain numbers"),
        ("none.npz", "holds no array"),
        ("words.npy", "expected real numbers, got dtype <U1"),
        ("complex.npy", "expected real numbers"),
        ("yes.npy", "expected real numbers"),
        ("none.npy", "the array is empty"),
        ("table.txt", "got '.txt'"),
    ],
)
def test_files_that_hold_no_array_are_refused_by_name(tmp_path, name, message):
    write_invalid_files(tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        read_array(str(tmp_path / name))
    assert str(caught.value).startswith(str(tmp_path / name))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("g.graphml", networkx.write_graphml),
        ("g.gml", networkx.write_gml),
        ("g.edgelist", networkx.write_edgelist),
        ("g.edgelist", lambda graph, path: networkx.write_edgelist(graph, path, data=["weight"])),
    ],
)
def test_graphs_come_back_with_their_lengths(tmp_path, name, write, weighted):
    graph = networkx.cycle_graph(5)
    if weighted:
        networkx.set_edge_attributes(graph, {edge: 1.0 + edge[0] for edge in graph.edges}, "weight")
    write(graph, tmp_path / name)
    assert is_graph(name)
    back = read_graph(str(tmp_path / name))
    assert sorted(map(str, back)) == list("01234")
    lengths = sorted(length for *_, length in back.edges(data="weight", default=1.0))
    assert lengths == ([1.0, 1.0, 2.0, 3.0, 4.0] if weighted else [1.0] * 5)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("bad.graphml", "hello <", "not a readable .graphml graph"),
        ("bad.gml", "hello <", "not a readable .gml graph"),
        ("bad.edgelist", "0 1 far\n", "not a readable .edgelist graph"),
        ("empty.edgelist", "# nothing\n", "the graph has no nodes"),
        ("empty.gml", "", "the file is empty"),
    ],
)
def test_files_that_hold_no_graph_are_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_graph(str(tmp_path / name))
    assert "\n" not in str(caught.value)
