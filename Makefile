PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test quick lint bench nightly clean

demo: $(VENV)/.demo
	$(BIN)/gradwright demo

test: lint
	$(BIN)/python -m pytest -n 2 -m "not slow"

quick: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 -m "not slow and not framework and not thorough"

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.test
	$(BIN)/python -m bench

nightly: $(VENV)/.test
	$(BIN)/python -m pytest -m slow --hypothesis-profile=nightly

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# pip is the last file that venv makes: an interrupted run is taken up again.
$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

# Both installs are editable: they share one environment, and a copied package would go stale in it.
$(VENV)/.demo: pyproject.toml | $(BIN)/pip
	$(BIN)/python -m pip install --quiet -e '.[demo]'
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/pip
	$(BIN)/python -m pip install --quiet -e '.[test]' -c constraints.txt
	touch $@
