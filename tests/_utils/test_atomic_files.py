"""Atomic writing of files: all or none appear, with the usual file mode."""

import os
import shutil
import stat

import pytest

from ugw._utils.atomic_files import atomic_folder


def read_contents(folder):
    """Return the text of each file in the folder."""
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_files_appear_at_the_end(tmp_path):
    with atomic_folder(tmp_path) as stage:
        (stage / "a.txt").write_text("one")
        (stage / "b.txt").write_text("two")
        assert not (tmp_path / "a.txt").exists()
    assert read_contents(tmp_path) == {"a.txt": "one", "b.txt": "two"}


def test_a_finished_stage_replaces_the_old_files(tmp_path):
    (tmp_path / "a.txt").write_text("old and long")
    (tmp_path / "b.txt").write_text("other")
    with atomic_folder(tmp_path) as stage:
        (stage / "a.txt").write_text("new")
        assert (tmp_path / "a.txt").read_text() == "old and long"
    assert read_contents(tmp_path) == {"a.txt": "new", "b.txt": "other"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
def test_a_failure_leaves_everything_as_it_was(tmp_path, error):
    (tmp_path / "a.txt").write_text("old")
    with pytest.raises(error), atomic_folder(tmp_path) as stage, (stage / "a.txt").open("w") as file:
        (stage / "b.txt").write_text("complete, but discarded with the other file")
        file.write("half")
        file.flush()
        raise error
    assert read_contents(tmp_path) == {"a.txt": "old"}


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002, 0o027])
def test_a_new_file_has_the_mode_that_the_umask_gives(tmp_path, umask):
    (tmp_path / "old.txt").write_text("")
    (tmp_path / "old.txt").chmod(0o600)
    before = os.umask(umask)
    try:
        with atomic_folder(tmp_path) as stage:
            for name in ("new.txt", "old.txt"):
                (stage / name).write_text("")
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {0o666 & ~umask}


def test_the_last_of_two_writers_wins(tmp_path):
    with atomic_folder(tmp_path) as outer, atomic_folder(tmp_path) as inner:
        (outer / "a.txt").write_text("one")
        (inner / "a.txt").write_text("two")
    assert read_contents(tmp_path) == {"a.txt": "one"}


def test_a_missing_folder_is_refused_before_the_work(tmp_path):
    calls = []
    with pytest.raises(FileNotFoundError) as caught, atomic_folder(tmp_path / "nowhere"):
        calls.append(True)
    assert not calls
    assert caught.value.filename == str(tmp_path / "nowhere")


def test_a_subfolder_with_the_name_of_a_file_is_an_error_and_no_file_moves(tmp_path):
    (tmp_path / "b.txt").mkdir()
    (tmp_path / "a.txt").write_text("old")
    with pytest.raises(IsADirectoryError) as caught, atomic_folder(tmp_path) as stage:
        for name in ("a.txt", "b.txt", "c.txt"):
            (stage / name).write_text("new")
    assert caught.value.filename == str(tmp_path / "b.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(5, "Input/output error", "hidden")])
def test_a_failure_between_the_moves_restores_the_old_files(tmp_path, monkeypatch, error, links):
    (tmp_path / "a.txt").write_text("old")
    (tmp_path / "c.txt").symlink_to("nowhere")
    move, moves = os.replace, []

    def replace(source, target):
        moves.append(os.path.basename(target))
        if moves == ["a.txt", "b.txt", "c.txt", "d.txt"]:
            raise error
        move(source, target)

    def refuse_link(*args, **kwargs):
        raise PermissionError("this file system has no hard links")

    monkeypatch.setattr(os, "replace", replace)
    if not links:
        monkeypatch.setattr(os, "link", refuse_link)
    with pytest.raises(type(error)) as caught, atomic_folder(tmp_path) as stage:
        for name in ("a.txt", "b.txt", "c.txt", "d.txt"):
            (stage / name).write_text("new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "c.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"
    assert (tmp_path / "c.txt").is_symlink()
    if isinstance(error, OSError):
        assert caught.value.filename == str(tmp_path / "d.txt")


def test_ctrl_c_while_the_temporary_folder_is_removed_leaves_no_folder(tmp_path, monkeypatch):
    rmtree, calls = shutil.rmtree, []

    def interrupt_first(folder, **options):
        """Raise KeyboardInterrupt in the first call, and remove the folder in the second."""
        calls.append(folder)
        if len(calls) == 1:
            raise KeyboardInterrupt
        rmtree(folder, **options)

    monkeypatch.setattr(shutil, "rmtree", interrupt_first)
    with pytest.raises(KeyboardInterrupt), atomic_folder(tmp_path) as stage:
        (stage / "a.txt").write_text("new")
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]
