# make demo      install into .venv and open the console on the single-machine sandbox
# make test      install the same .venv and run the quick tests, about 95 % of all
# make check     what the continuous checks run: format, lint, types, import rules, and all tests in three tiers, the last two side by side
# make fix       format and mend what can be mended by itself
# make bench     our figures beside those of the tools we compare with; BENCH=--smoke in a tiny size, or names of rows
# make fuzz      properties with new random examples, mostly 2,000 each; a check repeats the same ones
# make mutants   small breakages, one at a time, and which of them the tests notice (MUTANTS="--sample 20 --tier both")
# make krew      archive and manifest for kubectl's plugin manager, to be downloaded from the folder URL=…
# make zipapp    dist/gpuconsole.pyz: the console in one file, for this platform and version of Python
# make pictures  the screens in README, taken from a real run in the sandbox

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -c .ci/constraints.txt
TORCH := $(shell grep '^torch==' .ci/constraints.txt)
SETTINGS := pyproject.toml .ci/constraints.txt

.PHONY: demo test test-slow test-cluster check fix bench fuzz mutants zipapp krew pictures clean

demo: $(VENV)/.ready
	@$(BIN)/gpuconsole --sandbox

# More processes than cores: many tests wait for others. tests/conftest.py says who gets what, and when.
WORKERS ?= 4

PYTEST := $(BIN)/python -m pytest

test: $(VENV)/.ready-dev
	$(PYTEST) -m "not slow and not cluster" -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-slow: $(VENV)/.ready-dev
	$(PYTEST) -m "slow and not cluster" -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# One cluster, so one process.
test-cluster: $(VENV)/.ready-dev
	$(PYTEST) -m cluster

check: $(VENV)/.ready-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) test
	$(MAKE) -j2 --output-sync=target test-slow test-cluster

fix: $(VENV)/.ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready-dev
	$(BIN)/python -m tests.bench $(BENCH)

fuzz: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -m "hypothesis and not cluster" -n $(WORKERS) --hypothesis-profile=fuzz --timeout=3600

mutants: $(VENV)/.ready-dev
	$(BIN)/python -m tests.mutants $(MUTANTS)

zipapp: $(VENV)/bin/python
	rm -rf build/zipapp
	$(INSTALL) --quiet --target build/zipapp .
	$(BIN)/python .ci/zipapp.py build/zipapp dist/gpuconsole.pyz

krew: zipapp
	@test -n "$(URL)" || { echo "Where will it be downloaded from? make krew URL=https://…" >&2; exit 1; }
	$(BIN)/python .ci/krew.py dist/gpuconsole.pyz LICENSE $$($(BIN)/gpuconsole --version | cut -d' ' -f2) "$(URL)"

pictures: $(VENV)/.ready-dev
	$(BIN)/python -m tests.pictures

$(VENV)/bin/python:
	@echo "[1/3] Making $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "gpuconsole needs Python 3.11 or newer; this is $$($(PYTHON) -V). Try: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "Python's venv module does not work here. On Debian: apt-get install python3-venv" >&2; exit 1; }

# torch first: it is the large one, and what else needs it must not choose another.
$(VENV)/.ready: $(SETTINGS) | $(VENV)/bin/python
	@echo "[2/3] Installing torch (some hundred megabytes)"
	@$(INSTALL) "$(TORCH)"
	@echo "[3/3] Installing gpuconsole and what it needs"
	@$(INSTALL) -e '.[trainer]'
	@touch $@

$(VENV)/.ready-dev: $(SETTINGS) $(VENV)/.ready
	@echo "[+] Installing the tools that check"
	@$(INSTALL) -e '.[trainer,dev]'
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
