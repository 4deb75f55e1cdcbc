"""Folders without data."""

import pytest


@pytest.fixture
def empty_data_folders(monkeypatch, tmp_path):
    """No data in UGW_DATA and an empty cache folder."""
    monkeypatch.delenv("UGW_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path
