# make setup | demo | test | test-all | check | bench
PYTHON ?= python3
WORKERS ?= 2
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup demo test test-all check bench

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Lamarckian needs Python 3.11 or newer; name one with make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[atari,pettingzoo,ec,cluster,dev]'
	touch $@

demo: setup
	$(BIN)/lamarckian train pong/ppo --run runs/demo --overwrite
	$(BIN)/lamarckian evaluate runs/demo

test: setup
	$(BIN)/python -m pytest -n $(WORKERS)

test-all: setup
	$(BIN)/python -m pytest -n $(WORKERS) -m ''

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	cd benchmarks && ../$(BIN)/mypy *.py simulated

bench: setup
	$(BIN)/python benchmarks/run.py
