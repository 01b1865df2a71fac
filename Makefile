.DEFAULT_GOAL := help
.PHONY: help run report test test-deploy test-lowest torture goldens check docs package format experiments bench bench-save bench-compare clean

# To use another Python in a separate environment: make test PYTHON=python3.13 VENV=.venv313
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable
LIGHT := $(VENV)/.ready-light
DOCS := $(VENV)/.ready-docs
READY := $(VENV)/.ready-dev

# The package with its required dependencies only.
$(LIGHT): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) .
	@touch $@

# The package with the tools of the documentation.
$(DOCS): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) with the packages for the documentation ..."
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) '.[docs]'
	@touch $(LIGHT) $@

# The package with all extras and development tools, more than twice as large.
$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) with the packages for tests ..."
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) '.[dev]'
	@touch $(LIGHT) $(DOCS) $@

help:  ## List the targets.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-14s %s\n", $$1, $$2}'

run: $(LIGHT)  ## Run the demo: CADIS on handwritten digits, 20 clients in 5 clusters.
	@$(BIN)/cadis run

report: $(LIGHT)  ## Compare six methods on the digits, three seeds each, and write a report (a few minutes).
	@$(BIN)/cadis compare --seeds 3 --rounds 40

test: $(READY)  ## Run all tests except those that start servers.
	@$(BIN)/pytest -n auto --dist worksteal

test-deploy: $(READY)  ## Run the tests that start a server and sites as processes (the others: make test).
	@$(BIN)/pytest -m deployment tests/deployed

test-lowest:  ## Run the tests with the lowest versions of packages that pyproject.toml allows (downloads gigabytes).
	@$(PYTHON) -m venv .venv-lowest
	@.ci/lowest > .venv-lowest/constraints.txt
	@.venv-lowest/bin/pip install --quiet --disable-pip-version-check --constraint .venv-lowest/constraints.txt --editable '.[dev]'
	@.venv-lowest/bin/pytest -n auto --dist worksteal -W default  # old releases give deprecation warnings

torture: $(READY)  ## Damage files and kill processes thousands of times, and rewrite the table of docs/explanation/reliability.md.
	@PYTHONPATH=tests $(BIN)/python -m torture --markdown docs/explanation/reliability.md

goldens: $(READY)  ## Compare the hashes of all results with the stored ones (CASES="fedavg flower" for some of them).
	@PYTHONPATH=tests $(BIN)/python -m goldens $(CASES)

check: $(READY)  ## Check lint, format, types and import rules.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

docs: $(DOCS)  ## Build the documentation as web pages; open site/index.html. A broken link is an error.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

package: $(READY)  ## Build the wheel and the sdist in dist/, and test the wheel in a new environment.
	@.ci/package $(BIN)/python

format: $(READY)  ## Format the code and fix lint errors.
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(READY)  ## Measure speed and memory as ratios (about 20 minutes; CASES="steps disk" for some of them).
	@$(BIN)/python -m benchmarks $(CASES)

bench-save: $(READY)  ## Measure as "make bench", and save the results in benchmarks/results (NOTE="..." is stored with them).
	@$(BIN)/python -m benchmarks --save --note "$(NOTE)" $(CASES)

bench-compare: $(READY)  ## Compare the two newest results (or FILES="OLD.json NEW.json").
	@$(BIN)/python -m benchmarks.compare $(FILES)

experiments: $(READY)  ## Rewrite the tables in docs (PLANS="digits mnist" runs the missing runs of these plans first).
	@$(if $(PLANS),$(BIN)/python -m experiments run $(PLANS))
	@$(BIN)/python -m experiments tables

clean:  ## Remove the virtual environment, built files and caches.
	@rm -rf $(VENV) dist site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
