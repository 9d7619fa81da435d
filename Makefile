SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV ?= .venv
UV ?= $(or $(shell command -v uv 2>/dev/null),$(VENV)/bin/uv)
PACKAGES := $(notdir $(wildcard packages/*))
# A package is built once it has a main job; the others only hold their place.
BUILT := $(patsubst packages/%/src,%,$(foreach p,$(PACKAGES),$(if $(wildcard packages/$(p)/src/$(p)/train.py),packages/$(p)/src)))
PKG ?=
RUN := $(VENV)/bin/python
INPUTS := pyproject.toml uv.lock shared/pyproject.toml $(wildcard packages/*/pyproject.toml)

# uv reads no pip settings: hand over where pip finds wheels (several, uv wants commas). Empty on
# an ordinary machine.
comma := ,
# (`pip config get` looks at the user's own file only.)
pip_links = $(shell $(PYTHON) -m pip config list 2>/dev/null | sed -n "s/^[a-z]*\.find-links='\(.*\)'/\1/p")
ifndef UV_FIND_LINKS
UV_FIND_LINKS := $(subst $(eval ) ,$(comma),$(strip $(or $(PIP_FIND_LINKS),$(pip_links))))
endif
export UV_FIND_LINKS
# Like pip, trust the certificates that the machine trusts.
export UV_SYSTEM_CERTS ?= 1
# A bare `uv run` would swap a CPU torch for the locked CUDA build.
export UV_NO_SYNC := 1
# Byte code saves twelve seconds at each start.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup demo test-all test lint format lock check-lock isolation bench readme build clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.ready  ## create .venv and install the seven packages, editable, with their tools

$(VENV)/.ready: $(INPUTS)
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@test -x "$(UV)" || $(VENV)/bin/python -m pip install -q uv
	$(UV) export -q --frozen --all-packages --all-groups --all-extras --no-emit-workspace --no-hashes -o $(VENV)/locked.txt
	$(UV) pip install -q --python $(VENV) --compile-bytecode -c $(VENV)/locked.txt --group dev -e shared $(PACKAGES:%=-e packages/%[all])
	@touch $@

demo: setup  ## run every main job and print one table with links to the reports
	$(RUN) -m papers_shared demo $(BUILT)

test-all: setup lint check-lock  ## lint, lock check, and all tests (DURATIONS=n lists the slowest)
	$(RUN) -m pytest -q --durations=$(or $(DURATIONS),5)

test: setup  ## tests of one package: make test PKG=bioxbridge (or shared, or tests)
	@test -n "$(PKG)" || { echo "name a package: make test PKG=bioxbridge"; exit 2; }
	$(RUN) -m pytest -q $(if $(filter shared tests,$(PKG)),$(PKG),packages/$(PKG))

lint: setup  ## ruff, import rules and dependency rules
	$(VENV)/bin/ruff check -q .
	$(VENV)/bin/ruff format -q --check .
	$(VENV)/bin/lint-imports | tail -n 1
	@set -e; for folder in shared $(BUILT:%=packages/%); do (cd $$folder && $(CURDIR)/$(VENV)/bin/deptry -o /dev/null src); done

format: setup  ## let ruff rewrite what it can
	$(VENV)/bin/ruff check -q --fix . || true
	$(VENV)/bin/ruff format -q .

lock:  ## resolve the lock file anew
	$(UV) lock

check-lock: setup  ## see that the lock file fits the seven pyproject files
	$(UV) lock --check -q

isolation: setup  ## build the wheels and install each member alone from them
	$(RUN) -m pytest -q tests/test_isolation.py --isolation

bench: setup  ## benchmarks of one package: make bench PKG=bioxbridge
	@test -n "$(PKG)" || { echo "name a package: make bench PKG=bioxbridge"; exit 2; }
	@set -e; export BENCH_RUNS=$$(mktemp -d); for file in packages/$(PKG)/benchmarks/bench_*.py; do $(RUN) $$file; done

readme: setup  ## write the results tables of the READMEs from benchmarks/results.json
	$(RUN) -m papers_shared readme .

build: setup  ## seven wheels and source distributions into dist/
	rm -rf dist
	$(UV) build -q --all-packages --no-sources -o dist

clean:  ## remove the environment, builds and caches (runs/ stays)
	rm -rf $(VENV) dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
