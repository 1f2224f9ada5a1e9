# `make demo` and `make test` need Python 3.11 and nothing else; both may be run again at any time.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
DEMO ?=
SEEDS ?= 100000
FROM ?= 0

.PHONY: demo test test-slow simulate promises lint bench ui install clean
.DEFAULT_GOAL := demo

# draws the sample archive and runs a whole search on it; `make demo DEMO=--quick` takes minutes
demo: install
	$(BIN)/parcel-assets demo $(DEMO)

test: install
	$(BIN)/python -m pytest

test-slow: install
	$(BIN)/python -m pytest -m slow

# whole searches in simulated worlds full of faults; failing seeds are printed and it goes on
simulate: install
	$(BIN)/python -m parcel_assets_tests.simulation $(SEEDS) --from $(FROM)

# what the statistics promise, counted in the shipped simulator's world, with Monte-Carlo errors
promises: install
	$(BIN)/python -m parcel_assets_tests.promises

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# our search against a plain sequential torch loop that does the same trials; wants a quiet machine
bench: install
	$(BIN)/python -m bench

ui: install
	$(BIN)/parcel-assets ui

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
