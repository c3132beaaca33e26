# DUQFL-Prox: every target sets itself up. `make help` explains them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

# The interpreter: the one named by PYTHON=, else the first that is new enough.
new-enough = $(shell $(1) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(1))
PYTHON ?= $(or $(call new-enough,python3),$(call new-enough,python3.13),$(call new-enough,python3.12),\
    $(call new-enough,python3.11),$(call new-enough,python),python3)
VENV := .venv
PY := $(VENV)/bin/python
PROFILE ?= paper

# Where the home folder cannot be written, Jupyter and matplotlib would warn in every notebook: they get a folder here.
ifneq ($(shell test -w "$$HOME" && echo yes),yes)
export IPYTHONDIR ?= $(CURDIR)/build/home/ipython
export MPLCONFIGDIR ?= $(CURDIR)/build/home/matplotlib
$(shell mkdir -p build/home/ipython build/home/matplotlib)
endif

##@ Set up

.PHONY: help
help: ## Explain every target
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-zA-Z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '\nVariables: PYTHON=interpreter  PROFILE=smoke|quick|paper  SEEDS="0 1"  DATASETS="baf genome"  JOBS=2\n'
	@printf 'Federation: CLIENTS=5  ROUNDS=3  METHOD=duqfl-prox  DATASET=baf|genome  SEED=0  FEDERATE="--insecure ..."\n'

.PHONY: setup
setup: ## Build .venv from requirements.lock (skipped when nothing changed)
	@PYTHON="$(PYTHON)" NAMED="$(filter-out undefined default file,$(origin PYTHON))" bash tools/setup.sh $(VENV)

.PHONY: lock
lock: setup ## Refresh requirements.lock from pyproject.toml
	@$(VENV)/bin/uv pip compile pyproject.toml --all-extras --universal --fork-strategy fewest --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --no-strip-extras --quiet --upgrade -o build-lock.tmp
	@mv build-lock.tmp requirements.lock
	@echo "requirements.lock refreshed: $$(grep -c == requirements.lock) packages"

##@ Data

.PHONY: data
data: setup ## Find or download the official files and say what will be used
	@$(PY) -m qfl_core data

##@ Reproduce

NOTEBOOKS := $(sort $(wildcard notebooks/*.ipynb))
OUT := build/$(PROFILE)
EXECUTED := $(NOTEBOOKS:notebooks/%=$(OUT)/%)
CORE := $(shell find qfl_core -name '*.py' -o -name '*.csv')
DATA := $(wildcard $(foreach d,$(QFL_DATA_DIR) data/cache,$(addprefix $(d)/,Base.parquet Base.csv demo_human_or_worm_v0.zip)))
SETTINGS := $(OUT)/.settings
RUN = $(PY) -m tools.run_notebook --profile $(PROFILE) --seeds "$(SEEDS)" --datasets "$(DATASETS)" $(WHOLE)

# Two notebooks at a time: while one loads or draws, another trains. Runs that both need are done once.
JOBS ?= 2

.PHONY: reproduce notebooks
reproduce: setup ## Run every notebook in order and regenerate the figures (PROFILE=smoke|quick|paper)
	@$(MAKE) $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(JOBS)) notebooks WHOLE=--whole
	@$(PY) tools/summary.py $(PROFILE)

notebooks: $(EXECUTED)

# What else decides a notebook's numbers; the file changes only when its content does, so that a change reruns them.
.PHONY: force
$(SETTINGS): force
	@mkdir -p $(@D)
	@printf '%s\n' 'seeds: $(SEEDS)' 'datasets: $(DATASETS)' "data folder: $${QFL_DATA_DIR-}" \
	  "cache folder: $${QFL_CACHE_DIR-}" > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

# The profile quick says only what differs from paper.
PROFILES := $(patsubst %,qfl_core/config/profiles/%.yaml,$(PROFILE) $(if $(filter quick,$(PROFILE)),paper))

$(OUT)/%.ipynb: notebooks/%.ipynb $(PROFILES) requirements.lock tools/run_notebook.py $(CORE) $(DATA) $(SETTINGS) | setup
	@$(RUN) $< $@

# Plotting reads what all the others but the first have made, so it runs last.
PLOTTING := $(filter $(OUT)/05%,$(EXECUTED))
ifneq ($(PLOTTING),)
$(PLOTTING): $(filter-out $(PLOTTING) $(OUT)/01%,$(EXECUTED))
endif

# The same order for what runs notebooks one after another.
plotting-last = $(foreach n,$(1),$(if $(findstring 05_,$(n)),,$(n))) $(foreach n,$(1),$(if $(findstring 05_,$(n)),$(n)))

# One notebook by its number: make notebook-03.
define number
.PHONY: notebook-$(firstword $(subst _, ,$(notdir $(1))))
notebook-$(firstword $(subst _, ,$(notdir $(1)))): $(1)
	@echo "$(1) is up to date"
endef
$(foreach target,$(EXECUTED:.ipynb=),$(eval $(call number,$(target).ipynb)))

notebook-NN: ## Run one notebook and those it reads from, e.g. make notebook-03
	@echo "name a number: $(foreach n,$(NOTEBOOKS),notebook-$(firstword $(subst _, ,$(notdir $(n)))))"

.PHONY: demo
demo: setup ## Train all seven methods once, on one seed, and show the picture: a first look within a minute (DATASET=baf)
	@$(PY) -m tools.demo --dataset $(or $(DATASET),genome)

.PHONY: readme
readme: setup ## Write the numbers of the README and of docs/paper-sentences.md from figures/tables
	@$(PY) -m tools.readme
	@$(PY) -m tools.sentences

.PHONY: figures
figures: setup ## Redraw every figure and table from saved results, without training
	@$(RUN) notebooks/05_plotting.ipynb $(OUT)/05_plotting.ipynb

.PHONY: report
report: setup ## Build build/report/index.html from what reproduce made (PROFILE=); trains nothing, needs no network to read
	@$(PY) -m tools.report --profile $(PROFILE)

.PHONY: protocol-search
protocol-search: setup ## Search the readings of the paper's open points completely (about 12 minutes; QFL_DATA_DIR=: its finalists on real files)
	@$(PY) -m qfl_core protocol --profile $(PROFILE)

.PHONY: metatrain
metatrain: setup ## Train the controller over many federations (about 40 minutes; PROFILE=); configs with controller=pretrained start from it
	@QFL_OFFLINE=1 $(PY) -m qfl_core metatrain --profile $(PROFILE)

.PHONY: controllers
controllers: setup ## Compare controllers with constant and tuned rates, circuits counted (about an hour; PROFILE=smoke is short); docs/controller.md
	@QFL_OFFLINE=1 $(PY) -m qfl_core controllers --profile $(PROFILE)

.PHONY: real
real: setup ## Train on the files of QFL_DATA_DIR, write figures/tables/real, compare with the stand-ins (PROFILE=)
	@$(PY) -m qfl_core real --profile $(PROFILE)

.PHONY: follow-up
follow-up: setup ## Judge the claims that are undecided once more, on fresh seeds alone (PROFILE=); docs/claims.md
	@$(PY) -m qfl_core follow-up --profile $(PROFILE)

.PHONY: error-rates
error-rates: setup ## Measure on planted data how often verdicts are wrong and intervals too short (about 9 minutes; docs/claims.md)
	@$(PY) -m tools.error_rates

.PHONY: lab
lab: setup ## Open the notebooks in JupyterLab (PORT=8889)
	@QFL_PROGRESS=on $(PY) -m jupyterlab $(if $(filter 0,$(shell id -u)),--allow-root) $(if $(PORT),--port=$(PORT)) notebooks

.PHONY: refresh-notebooks
refresh-notebooks: setup ## Bring the notebooks in step with their .py files and run their twins in tests/notebooks (smoke)
	@env -u QFL_DATA_DIR QFL_OFFLINE=1 $(PY) -m tools.refresh_notebooks $(call plotting-last,$(sort $(wildcard notebooks/*.py)))

.PHONY: store-notebooks
store-notebooks: setup ## Store the outputs that make reproduce made (PROFILE=paper) in the notebooks
	@$(PY) -m tools.stored_notebooks $(NOTEBOOKS:notebooks/%=build/paper/%)

.PHONY: refresh-reference
refresh-reference: setup ## Write the smoke results that the tests compare with anew (after a meant change)
	@$(PY) tests/reference.py

##@ Hardware

# QISKIT_IBM_TOKEN and QISKIT_IBM_INSTANCE come from the environment alone.
.PHONY: hardware
hardware: setup ## Validate checkpoints on a backend (DRY_RUN=1, BACKEND=ibm_fez, MAX_SECONDS=300, DATASET=, PROFILE=)
	@$(PY) -m qfl_core hardware $(if $(filter-out 0,$(DRY_RUN)),dry-run,run) --profile $(PROFILE) \
	  $(if $(BACKEND),--backend $(BACKEND)) $(if $(MAX_SECONDS),--max-seconds $(MAX_SECONDS)) \
	  $(if $(DATASET),--dataset $(DATASET))

##@ Federate

.PHONY: federate
federate: setup ## Run a federation over Flower nodes on loopback, with TLS and node keys (CLIENTS= ROUNDS= METHOD= DATASET=)
	@$(PY) -m qfl_core federate --clients $(or $(CLIENTS),5) --rounds $(or $(ROUNDS),3) --seed $(or $(SEED),0) \
	  --method $(or $(METHOD),duqfl-prox) --dataset $(or $(DATASET),baf) $(FEDERATE)

##@ Check

# The notebooks' twins hold the outputs of the profile smoke; the notebooks themselves show the paper's.
TWINS := $(sort $(wildcard tests/notebooks/*.ipynb))
NBVAL := env -u QFL_DATA_DIR QFL_OFFLINE=1 $(PY) -m pytest -p tools.kernel_ports --noconftest --nbval --nbval-sanitize-with tests/nbval.cfg

# Two notebooks at a time; the fifth reads what the others stored.
.PHONY: test
test: setup ## Run all tests with coverage, rerun the notebooks' twins and compare outputs, check that every figure is drawn
	@$(PY) -m pytest -n 2 -m "not (flower and slow)" --cov=qfl_core --cov-report=term:skip-covered --cov-fail-under=90 tests
	@rm -rf build/figures/smoke
	@$(NBVAL) -n 2 --dist loadfile $(filter-out tests/notebooks/05%,$(TWINS))
	@$(NBVAL) $(filter tests/notebooks/05%,$(TWINS))
	@$(PY) -m pytest tests/check_figures.py

.PHONY: test-federation
test-federation: setup ## Run the tests of real federations: equality, faults, restarts, the simulation engine
	@$(PY) -m pytest -m "flower and slow" tests

.PHONY: test-load
test-load: setup ## Repeat the tests that start processes or wait for locks on a busy machine (TIMES=20 FILES=)
	@$(PY) tests/under_load.py $(or $(TIMES),20) $(FILES)

.PHONY: mutation
mutation: setup ## Break Algorithms 1 to 3 and what keeps results safe in known ways, one at a time: a test must notice each
	@$(PY) tests/mutation.py

.PHONY: lint
lint: setup ## Check style (ruff) and types (mypy: strict on the paper, the engines and the runs)
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

.PHONY: format
format: setup ## Apply the style
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

.PHONY: architecture
architecture: setup ## Draw docs/architecture.png from the imports, and count files and lines of every room
	@$(PY) -m tools.architecture

.PHONY: bench
bench: setup ## Compare the engines with their peers: speed as ratios, values checked (build/bench)
	@$(PY) -m tools.bench --out build/bench

##@ Clean

.PHONY: clean
clean: ## Remove what can be rebuilt from results (never data, results or .venv)
	@rm -rf build .pytest_cache .ruff_cache .mypy_cache .hypothesis
	@find qfl_core tests notebooks tools -name __pycache__ -prune -exec rm -rf {} +

.PHONY: clean-results
clean-results: ## Remove all training results, after asking (YES=1 does not ask)
	@if [ ! -d results ]; then echo "clean-results: there are none"; exit 0; fi; \
	if [ "$(YES)" != 1 ]; then \
	  printf 'Remove results/ (%s runs)? [y/N] ' "$$(find results -name DONE | wc -l | tr -d ' ')"; \
	  read -r answer || answer=; [ "$$answer" = y ] || { echo "kept"; exit 0; }; \
	fi; rm -rf results; echo "clean-results: removed"
