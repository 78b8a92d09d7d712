# Every target makes .venv and installs what it needs; nothing but Python 3.11+ and make has to be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MODEL ?= smollm2-135m
ifeq ($(shell uname -s),Darwin)
EXTRAS := dev,test
else
EXTRAS ?= cpu,dev,test
endif

.PHONY: venv serve chat test test-slow check bench format clean

venv: $(VENV)/.installed

$(VENV)/.installed: Makefile pyproject.toml lattice_core/__init__.py
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Lattice needs Python 3.11 or newer; this is " + sys.version.split()[0] + ": set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	touch $@

serve: venv  ## an OpenAI-compatible server on port 11435
	$(BIN)/lattice pull $(MODEL)
	$(BIN)/lattice serve --model $(MODEL)

chat: venv  ## a conversation in the terminal
	$(BIN)/lattice pull $(MODEL)
	$(BIN)/lattice chat --model $(MODEL)

test: venv  ## the tests; the demo model is fetched once
	$(BIN)/lattice pull smollm2-135m
	$(BIN)/python -m pytest

test-slow: venv  ## what takes longer than a few seconds a test
	$(BIN)/lattice pull smollm2-135m
	$(BIN)/python -m pytest -m slow

check: venv  ## lint, types, directions of imports, fast tests without the demo model
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -m 'not slow and not model'

bench: venv  ## SmolLM2 on this machine against mlx-lm
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/lattice pull smollm2-135m
	$(BIN)/python benchmarks/smollm2_vs_mlx_lm.py
	$(BIN)/python benchmarks/qwen35_vs_mlx_lm.py

format: venv
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
