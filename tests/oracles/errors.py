"""Errors of bad input."""

import pytest

import ugw


def assert_refused(call, *args, match=None, **kwargs):
    """Return the message of the InputError that a call ends with: one line that says what was given."""
    with pytest.raises(ugw.InputError, match=match) as caught:
        call(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    assert "got" in message
    assert len(message) < 250
    assert isinstance(caught.value, ValueError)
    return message
