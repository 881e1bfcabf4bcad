# Every target sets itself up: the first one builds .venv from the lock, later ones find it ready.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
TORCH := 2.13.0
EXTRAS := frames ecg eeg speech archive plot dtw gallery postgres serve cluster multi-gpu
BIN := .venv/bin
LOCK := $(shell $(PYTHON) -c 'import sys; print("requirements.lock" if sys.version_info >= (3, 11) else "requirements-3.10.lock")')
DEMO := .venv/.ready-for-demo
READY := .venv/.ready
CODE := src tests $(sort $(dir $(wildcard benchmarks/*.py examples/*.py runs/*.py)))

export PIP_DISABLE_PIP_VERSION_CHECK = 1

INSTALL := $(BIN)/python -m pip install --quiet
FAILED := { echo "setting up .venv failed, the reason stands above; after a set-up that was cut short, \
  rm -rf .venv and make again" >&2; exit 1; }

.PHONY: help demo test check lint types bench lock clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-7s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(DEMO)  ## search a sample collection by example and show what is found
	@$(BIN)/geopatch demo

test: check  ## check, then run the tests; at least 90 % of the lines must be covered
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal --cov --durations 30

check: lint types  ## lint, formatting and types

lint: $(READY)
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

types: $(READY)
	$(BIN)/mypy $(CODE)

bench: $(READY)  ## run the benchmarks
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/gallery.py --windows 20000

# torch stays at one version for everybody; its local tag (+cpu, +cu...) and its CUDA libraries depend on the machine and
# are cut off. The extra `all` is spelled out: it names this package itself, which would be locked to this folder. So does
# the laboratory (lab/pyproject.toml), whose libraries come by extras that are listed here.
lock: $(READY)  ## write the lock of this Python; pins stay where they fit (make lock UPGRADE=--upgrade takes the newest)
	@cp $(LOCK) .venv/lock.found
	$(BIN)/pip-compile pyproject.toml $(addprefix --extra ,$(EXTRAS) dev) \
	  $(UPGRADE) --upgrade-package torch==$(TORCH) --output-file .venv/lock.found \
	  --quiet --no-header --no-config --strip-extras --no-build-isolation \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --unsafe-package pip
	@{ echo "# Every library of all extras, pinned. Made by: make lock"; \
	  awk '/^[a-z]/ {cut = /^(nvidia|cuda|triton)/} !cut' .venv/lock.found \
	  | sed -E 's/^([a-z0-9._-]+==[^+ ]+)\+[a-z0-9.]+/\1/'; } > .venv/lock.new
	@if grep -n '://' .venv/lock.new; then \
	  echo "the lines above belong to this machine only; $(LOCK) stays as it was" >&2; exit 1; fi
	@mv .venv/lock.new $(LOCK)

clean:  ## remove build output and caches (.venv stays)
	rm -rf build dist lab/dist .mypy_cache .ruff_cache .pytest_cache .hypothesis htmlcov .coverage .coverage.* coverage.xml
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are touched last, so an interrupted install is taken up again by the next make.
# The demo needs a third of the lock: it takes its pins from there as constraints.
$(DEMO): pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; v >= (3, 10) or sys.exit("expected Python 3.10 or newer, \
	got %d.%d; try: make PYTHON=python3.12 ..." % v)'
	@echo "setting up .venv (a minute or two the first time)"
	@rm -f $@
	@$(PYTHON) -m venv .venv
	@$(INSTALL) -c $(LOCK) hatchling editables || $(FAILED)
	@$(INSTALL) -c $(LOCK) --no-build-isolation -e '.[plot]' || $(FAILED)
	@touch $@

$(READY): $(DEMO)
	@echo "adding what tests and checks need (a minute or two the first time)"
	@rm -f $@
	@$(INSTALL) -r $(LOCK) || $(FAILED)
	@touch $@
