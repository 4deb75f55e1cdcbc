"""Old public spellings work, and warn at the line that used them."""

import inspect
import warnings

import pytest

from ugw._utils.deprecation import renamed_arguments, renamed_attribute


@renamed_arguments(colour="color")
def paint(shape, *, color="red"):
    return shape, color


class Task:
    unlabeled = 3
    unlabelled = renamed_attribute("Task", "unlabelled", "unlabeled")


def test_an_old_keyword_reaches_the_new_argument_and_warns_at_the_callers_line():
    line = inspect.currentframe().f_lineno + 2
    with pytest.warns(DeprecationWarning, match="paint.colour=.* is deprecated: use color") as caught:
        assert paint("square", colour="blue") == ("square", "blue")
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)


def test_the_new_keyword_does_not_warn():
    with warnings.catch_warnings(action="error"):
        assert paint("square", color="blue") == ("square", "blue")


def test_both_keywords_are_an_error():
    with pytest.raises(TypeError, match="both 'color' and its old name 'colour'"):
        paint("square", color="blue", colour="blue")


def test_an_old_attribute_reads_the_new_one():
    with pytest.warns(DeprecationWarning, match=r"Task\.unlabelled"):
        assert Task().unlabelled == 3
