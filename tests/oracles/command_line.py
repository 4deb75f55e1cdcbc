"""Calls of the command line in this process."""

from click.testing import CliRunner

from ugw.cli import commands


def run(*args):
    """Return the outcome of `ugw` with these arguments; exceptions other than errors of a command are raised."""
    return CliRunner().invoke(commands.main, [str(arg) for arg in args], catch_exceptions=False)


def match(*args):
    """Return the outcome of a quick match: blurred, from one start."""
    return run("match", *args, "--eps", "10%", "--init", "product")
