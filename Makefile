# `make demo` and `make test` set up .venv by themselves. Another interpreter: `make PYTHON=python3.12 install`.
.DEFAULT_GOAL := help
.PHONY: help install demo paper test test-fuzz test-without test-torch test-lowest test-browser lint format docs bench bench-full clean

NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$p && break; done)
INSTALLED := .venv/.installed
WORKERS ?= 2

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED)  ## .venv with the library (editable) and everything its tests need

$(INSTALLED): pyproject.toml setup.py constraints.txt $(wildcard src/ugw/kernels/cpu/*.[ch]pp)
	@$(or $(PYTHON),false) -c '$(NEW_ENOUGH)' 2>/dev/null || { \
		echo "ugw needs Python 3.11 or newer, found: $$($(or $(PYTHON),python3) --version 2>/dev/null || echo none); try: make PYTHON=/path/to/python3.11 install" >&2; exit 1; }
	@echo "Setting up .venv with $$($(PYTHON) --version); torch is the large part, this can take some minutes."
	@$(PYTHON) -m venv .venv
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: install  ## match two shapes by GW and by UGW, print a table and write the picture to out/
	.venv/bin/ugw demo --out out

paper: install  ## run all experiments of the paper (`ugw reproduce NAME` runs one); writes pictures and numbers to out/
	@set -e; for name in $$(.venv/bin/python -c 'from ugw.experiments import REPRODUCED; print(*REPRODUCED)'); do \
		echo "== $$name"; .venv/bin/ugw reproduce $$name --out out; done

PYTEST := OMP_NUM_THREADS=1 MPLBACKEND=Agg .venv/bin/python -m pytest
REPORT_DURATIONS = -p tests.durations --durations-report=out/$@-durations.txt

test: install  ## the test suite on two cores, seconds per file in out/test-durations.txt; e.g. `make test ARGS="-k layers -x"`
	$(PYTEST) -n $(WORKERS) $(REPORT_DURATIONS) $(ARGS)

test-fuzz: install  ## the tests on random examples, with 2000 new ones each: some minutes; a failure prints how to repeat it
	UGW_HYPOTHESIS_PROFILE=fuzz $(PYTEST) -n $(WORKERS) -m hypothesis $(ARGS)

PACKAGES ?= triton
comma := ,
test-without: install  ## the test suite as if packages were not installed: `make test-without PACKAGES="triton plotly"` (default triton)
	$(PYTEST) -n $(WORKERS) -p tests.hidden_packages --hide $(subst $(eval) ,$(comma),$(strip $(PACKAGES))) $(ARGS)

test-torch: install  ## the test suite without the compiled steps: torch makes every step
	UGW_COMPILED=0 $(PYTEST) -n $(WORKERS) $(REPORT_DURATIONS) $(ARGS)

LOWEST := .venv-lowest/.installed

$(LOWEST): pyproject.toml setup.py tests/lowest_versions.py $(wildcard src/ugw/kernels/cpu/*.[ch]pp)
	@echo "Setting up .venv-lowest with the lowest versions that pyproject.toml allows, for Python 3.11 or 3.12."
	@$(PYTHON) -m venv .venv-lowest
	@.venv-lowest/bin/python -m tests.lowest_versions > .venv-lowest/constraints.txt
	@.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check -c .venv-lowest/constraints.txt \
		-e . pytest pytest-xdist hypothesis
	@touch $@

test-lowest: $(LOWEST)  ## the tests of problems, solvers, api and geometry with the lowest versions that pyproject.toml allows
	$(subst .venv/,.venv-lowest/,$(PYTEST)) -n $(WORKERS) tests/problems tests/solvers tests/api tests/geometry $(ARGS)

test-browser: install  ## the reports in a real browser, the distribution's Chromium; skipped where there is none
	$(PYTEST) -m browser tests/browser $(ARGS)

lint: install  ## ruff (rules and format) and mypy
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

format: install  ## let ruff fix what it can
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

DOCUMENTED := .venv/.docs

$(DOCUMENTED): $(INSTALLED)
	@echo "Adding what builds the documentation."
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

docs: $(DOCUMENTED)  ## the documentation site with its gallery, out/docs/index.html: some minutes, no network
	OMP_NUM_THREADS=1 MPLBACKEND=Agg .venv/bin/sphinx-build -W --keep-going -n -q -j $(WORKERS) -d out/doctrees docs out/docs
	@echo "Open out/docs/index.html"

BENCHED := .venv/.bench

$(BENCHED): $(INSTALLED)
	@echo "Adding the packages to compare with."
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]' \
		|| echo "Not all of them installed: the table says which are missing." >&2
	@touch $@

bench: $(BENCHED)  ## ugw beside POT, fugw and others, the small sizes: some minutes; results in benchmarks/results/
	.venv/bin/python -m benchmarks.compare --quick $(ARGS)

bench-full: $(BENCHED)  ## the same with all sizes and all peers: some hours; goes on where it was interrupted
	.venv/bin/python -m benchmarks.compare --full $(ARGS)

clean:  ## remove .venv, out/ and caches
	rm -rf .venv .venv-lowest out docs/gallery docs/api build dist src/*.egg-info src/ugw/kernels/cpu/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
