"""Result folders receive all files of a run or none."""

import pytest

from ugw import InputError
from ugw._utils.output_folder import output_folder


def test_a_folder_is_made_and_filled(tmp_path):
    for name in ("a.txt", "b.txt"):  # a new one, then one that is there
        with output_folder(tmp_path / "new" / "deep") as stage:
            (stage / name).write_text("done")
    assert sorted(path.name for path in (tmp_path / "new" / "deep").iterdir()) == ["a.txt", "b.txt"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_failure_leaves_the_folder_as_it_was_or_unmade(tmp_path, error):
    (tmp_path / "a.txt").write_text("old")

    def write_partially(folder):
        with output_folder(folder) as stage:
            (stage / "a.txt").write_text("half")
            raise error

    for folder in (tmp_path, tmp_path / "new" / "deep"):
        with pytest.raises(error):
            write_partially(folder)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.txt", "old")]


def test_a_place_that_cannot_be_written_to_is_found_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    worked = []
    with pytest.raises(InputError, match="cannot write to"), output_folder(tmp_path / "file"):
        worked.append(True)
    assert not worked


def test_a_folder_in_the_place_of_a_file_is_found_before_the_work(tmp_path):
    (tmp_path / "b.txt").mkdir()
    worked = []
    message = r"cannot write to .*b\.txt: Is a directory"
    with pytest.raises(InputError, match=message) as caught, output_folder(tmp_path, names=["a.txt", "b.txt"]):
        worked.append(True)
    assert not worked
    assert ".ugw-" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["b.txt"]
