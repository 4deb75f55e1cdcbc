"""Pytest plugin that writes the seconds of every test file to a report: `pytest -p tests.durations --durations-report=FILE`.

It measures CPU seconds (of the test and of the processes it started and waited for) as well as wall-clock seconds,
because CPU seconds depend less on what else the machine is doing. `make test` writes `out/test-durations.txt`.
"""

import os
from collections import defaultdict
from pathlib import Path

import pytest

N_SLOWEST = 40  # tests listed one by one below the table of files
CPU = "cpu_seconds"  # name of the property that carries the measurement from a worker to the process that reports


def pytest_addoption(parser):
    parser.addoption("--durations-report", metavar="FILE", help="write the seconds of every test file to FILE")


def pytest_configure(config):
    if config.getoption("durations_report"):
        config.pluginmanager.register(DurationsReport(config), "durations-report")


def cpu_seconds():
    """CPU seconds used so far by this process and by those of its child processes that have ended."""
    return sum(os.times()[:4])


class DurationsReport:
    """Measures each test in the process that runs it; the process that prints the summary adds up and writes the file."""

    def __init__(self, config):
        self.path = Path(config.getoption("durations_report"))
        self.is_worker = hasattr(config, "workerinput")  # of pytest-xdist
        self.measured_until = cpu_seconds()
        self.cpu, self.wall = defaultdict(float), defaultdict(float)  # by the id of the test

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self):
        self.measured_until = cpu_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self):
        report = yield
        now = cpu_seconds()
        report.user_properties.append((CPU, now - self.measured_until))
        self.measured_until = now
        return report

    def pytest_runtest_logreport(self, report):
        if not self.is_worker:
            self.cpu[report.nodeid] += dict(report.user_properties).get(CPU, 0.0)
            self.wall[report.nodeid] += report.duration

    def pytest_terminal_summary(self, terminalreporter):
        if not self.is_worker and self.cpu:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(durations_table(self.cpu, self.wall), encoding="utf-8")
            terminalreporter.write_line(f"seconds of every test file: {self.path}")


def durations_table(cpu, wall):
    """The report's text: the total, one line per file, then the slowest tests; all sorted by CPU seconds.

    cpu, wall: seconds by test id (`tests/api/test_solve.py::test_name`).
    """
    files = defaultdict(list)
    for test in cpu:
        files[test.partition("::")[0]].append(test)

    def line(name, tests):
        return f"{sum(cpu[t] for t in tests):10.1f} {sum(wall[t] for t in tests):10.1f} {len(tests):6d}  {name}"

    by_cpu = sorted(files, key=lambda file: -sum(cpu[test] for test in files[file]))
    slowest = sorted(cpu, key=lambda test: -cpu[test])[:N_SLOWEST]
    lines = [
        "     CPU s     wall s  tests",
        line("all", list(cpu)),
        *(line(file, files[file]) for file in by_cpu),
        "",
        *(line(test, [test]) for test in slowest),
    ]
    return "\n".join(lines) + "\n"
