# Everything a newcomer needs: `make demo` and `make test`. Each target does all of its own set-up.
# Needed on the machine: Python >= 3.11 with venv, and a C compiler (without one everything runs as plain Python). Spark wants
# Java >= 17; where there is none, a runtime comes with the Python packages.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := .venv-installed
HOT := $(shell find src/flockmq/wire src/flockmq/mqtt src/flockmq/session src/flockmq/routing src/flockmq/node src/flockmq/log src/flockmq/raft src/flockmq/peering src/flockmq/durable -name '*.py' 2>/dev/null)
CORES ?= $(shell nproc 2>/dev/null || echo 2)
# Tests with processes wait for them most of the time (a fifth of it is work): two and a half workers per core.
WORKERS ?= $(shell expr $(CORES) \* 5 / 2)
PYTEST := $(BIN)/python -m pytest -q --dist loadgroup
# Plain Python can differ from compiled only in what is compiled (setup.py) and stands on it.
PURE_TESTS := $(addprefix tests/unit/,wire mqtt session routing node log raft peering durable) tests/properties tests/conformance

.PHONY: help setup demo test test-installed test-compiled test-pure test-long lint format bench bench-durable bench-sessions bench-raft bench-spark faults simulate simulate-nodes clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 16

setup: $(VENV)/.compiled  ## the virtual environment, with the hot modules compiled

$(VENV)/.installed: pyproject.toml
	@echo "==> virtual environment with Spark (a few minutes, once)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check 'setuptools>=77'
	FLOCKMQ_PURE=1 $(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation -e '.[dev,lake]'
	touch $@

$(VENV)/.compiled: $(VENV)/.installed setup.py $(HOT)
	@echo "==> compiling the hot modules with mypyc (two minutes, when they changed)"
	find src -name '*.so' -delete
	$(BIN)/python setup.py -q build_ext --inplace > $(VENV)/compile.log 2>&1 || (tail -40 $(VENV)/compile.log; exit 1)
	! grep -A1 'the hot modules can.t be compiled' $(VENV)/compile.log || (tail -40 $(VENV)/compile.log; exit 1)
	touch $@

# As its users do, into an empty environment and with an isolated build; `setup` then finds the same C compiled.
$(INSTALLED)/.installed: pyproject.toml setup.py $(shell find src -name '*.py' -o -name '*.sql' -o -name '*.yml' 2>/dev/null)
	@echo "==> pip install . into an empty environment (two minutes, when something changed)"
	rm -rf $(INSTALLED)
	$(PYTHON) -m venv $(INSTALLED)
	$(INSTALLED)/bin/python -m pip install -v --disable-pip-version-check . > $(INSTALLED)/install.log 2>&1 || (tail -40 $(INSTALLED)/install.log; exit 1)
	touch $@

demo: setup  ## three nodes, a simulated fleet, one node killed, and Spark computing on what is kept
	$(BIN)/flockmq demo

test: lint $(INSTALLED)/.installed test-compiled test-pure  ## what CI runs: lint, all tests compiled, the core again as plain Python

test-installed: $(INSTALLED)/.installed setup  ## `pip install .` in an empty environment, and a broker started from there
	INSTALLED_FLOCKMQ=$(INSTALLED) $(PYTEST) -n 1 tests/integration/test_install.py

# Attacks measure how long other clients wait: nothing else runs beside them.
test-compiled: $(INSTALLED)/.installed setup
	$(PYTEST) -n 1 tests/faults/attacks
	INSTALLED_FLOCKMQ=$(INSTALLED) $(PYTEST) -n $(WORKERS) tests --ignore tests/faults/attacks

test-pure: setup
	FLOCKMQ_PURE=1 $(PYTEST) -n $(CORES) $(PURE_TESTS)

test-long: setup  ## the property tests with 100,000 cases each
	FLOCKMQ_HYPOTHESIS=long $(PYTEST) -n $(CORES) tests/properties --timeout 0

lint: $(VENV)/.installed  ## ruff, mypy strict, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed  ## let ruff fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup bench-durable  ## side by side with mosquitto and NATS: tables with ratios, and JSON
	$(BIN)/python -m benchmarks.run $(BENCH)

bench-durable: setup  ## durable topics on three nodes, side by side with NATS JetStream (QUICK=1: a few minutes)
	$(BIN)/python -m benchmarks.durable $(if $(QUICK),--quick)

bench-sessions: setup  ## persistent sessions: connects, capture, resume storms, takeovers, failover (QUICK=1: less)
	$(BIN)/python -m benchmarks.sessions $(if $(QUICK),--quick) $(BENCH)

bench-raft: setup  ## three nodes of consensus alone: rates, latency, many groups, idle groups
	$(BIN)/python -m benchmarks.raft $(BENCH)

bench-spark: setup  ## Spark on three nodes: a topic of 5 M records beside Parquet, small micro-batches, alerts (QUICK=1: less)
	$(BIN)/python -m benchmarks.spark $(if $(QUICK),--quick) $(BENCH)

faults: setup  ## kill, pause and corrupt real nodes under load, KILLS times (default 200), durable topics for FOR seconds
	FLOCKMQ_FAULTS_S=$(or $(FOR),120) FLOCKMQ_FAULTS_RATE=2000 \
	FLOCKMQ_SPARK_KILLS=$(or $(SPARK_KILLS),8) \
	FLOCKMQ_KILLS=$(or $(KILLS),200) FLOCKMQ_PAUSES=$(or $(PAUSES),50) FLOCKMQ_CORRUPTIONS=$(or $(CORRUPTIONS),20) \
	$(BIN)/python -m pytest -q -s tests/faults

simulate: setup  ## clusters of LAYERS (consensus, nodes, gossip; default consensus) from SEEDS seeds (default 1000), FIRST on
	$(BIN)/python -m flockmq.testing.simulate --layers $(or $(LAYERS),consensus) --seeds $(or $(SEEDS),1000) --first $(or $(FIRST),0)

simulate-nodes:  ## the same with LAYERS=nodes: brokers, cluster state, durable topics, clients
	$(MAKE) simulate LAYERS=nodes

clean:  ## everything that was built
	rm -rf $(VENV) $(INSTALLED) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src -name '*.so' -delete
