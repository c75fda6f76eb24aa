# Every target does its own set-up: it needs python3 and the package registries, nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# More than there are cores: a test waits more than it works.
WORKERS ?= 4
# With RUNNER=hack/lane.py tests that fail run again by themselves: see there.
RUNNER ?= -m pytest
PYTEST = $(RUNNER) -n $(WORKERS) --dist worksteal
# Where PYTHONDONTWRITEBYTECODE is set, each worker and each program that a test starts would compile
# all tests and the whole package anew, which is a tenth of the run.
CACHED = PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(abspath $(VENV))/bytecode

# How often `make hunt` tries the property tests.
ROUNDS ?= 20

.PHONY: bench crds demo docs test test-long check format soak clean coverage test-lowest fidelity webhooks control-plane helm hunt dist

# The main job, on the embedded API server or, with `make demo KUBECONFIG=...`, on that cluster. A
# KUBECONFIG in the environment is left alone: nobody's cluster should be used by accident.
demo: $(READY)
	$(BIN)/python examples/issue_tracker.py $(if $(filter command line,$(origin KUBECONFIG)),--kubeconfig $(KUBECONFIG))

# Those on a real control plane need KUBEBUILDER_ASSETS and are skipped without it.
test: $(READY)
	$(CACHED) $(BIN)/python $(PYTEST) -m 'not long' $(ARGS)

# The others: whole projects with their own checks, examples from end to end, minutes of load.
test-long: $(READY)
	$(CACHED) $(BIN)/python $(PYTEST) -m long $(ARGS)

# `make -j 2 -O check` runs two of them at a time.
CHECKS := check-format check-lint check-mypy check-pyright check-user-types check-imports
.PHONY: $(CHECKS)
check: $(CHECKS)
check-mypy: $(READY)
	$(BIN)/mypy
check-pyright: $(READY)
	$(BIN)/pyright --pythonpath $(BIN)/python
check-user-types: $(READY)
	$(BIN)/python hack/user_types.py
check-format: $(READY)
	$(BIN)/ruff format --check .
check-lint: $(READY)
	$(BIN)/ruff check .
check-imports: $(READY)
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

coverage: $(READY)
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(ARGS)
	$(BIN)/coverage combine
	$(BIN)/coverage report

# How the embedded server compares with the real one that KUBEBUILDER_ASSETS names.
fidelity: $(READY)
	$(BIN)/python -m tests.differential $(ARGS)

# How webhooks of the kit compare with those of controller-runtime, both on the real server.
webhooks: $(READY)
	$(BIN)/python -m tests.webhooks.differential $(ARGS)

# Builds a current etcd and kube-apiserver once, into the user's cache folder, and prints where:
# export KUBEBUILDER_ASSETS=$(make -s control-plane)
control-plane:
	@hack/control-plane/build.sh

# Builds helm once, into the user's cache folder, and prints where; the tests of charts need it.
helm:
	@hack/helm/build.sh

# Measures the kit beside its peers and writes docs/performance.md; with ARGS, such as ARGS=--quick,
# it only prints. It has a virtual environment of its own, for the peers.
bench: .venv-bench/.ready
	@mkdir -p build
	.venv-bench/bin/python -m benchmarks $(or $(ARGS),--json build/performance.json --write)

# The documentation as a site of static files, and its checks: any warning fails. It has a virtual
# environment of its own. ARGS=--external asks other servers whether links to them lead somewhere.
docs: .venv-docs/.ready
	.venv-docs/bin/python hack/site.py $(ARGS)

# The sdist and the wheel, each checked as its users meet it.
dist: $(READY)
	$(BIN)/python hack/dist.py $(ARGS)

# A few minutes of random writes and faults, then convergence and memory are checked.
soak: $(READY)
	$(BIN)/python benchmarks/soak.py $(ARGS)

# The CustomResourceDefinitions of known projects, into Go's module cache, and their tests: minutes.
crds: $(READY)
	@$(BIN)/python hack/real_crds.py
	REAL_CRDS=1 $(BIN)/python $(PYTEST) tests/project/test_real_crds.py $(ARGS)

# The property tests with other examples than those that `make test` tries each time.
hunt: $(READY)
	for round in $$(seq $(ROUNDS)); do \
	  $(CACHED) $(BIN)/python $(PYTEST) -q -m hypothesis --hypothesis-profile=hunt $(ARGS) || exit; \
	done

# The tests on the oldest versions of the dependencies that pyproject.toml allows.
test-lowest: VENV = .venv-lowest
test-lowest:
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet uv
	$(VENV)/bin/uv pip install --quiet --python $(VENV) --resolution lowest-direct -e '.[testing,cli,tracing]'
	$(VENV)/bin/pip install --quiet pytest-timeout pytest-xdist
	$(CACHED) $(VENV)/bin/python $(PYTEST) $(ARGS)

$(READY): INSTALLED = -e '.[testing,cli,tracing]' --group dev
.venv-bench/.ready: INSTALLED = -e '.[testing]' --group bench
.venv-docs/.ready: INSTALLED = -e '.[testing,cli,tracing]' --group docs
$(READY) .venv-bench/.ready .venv-docs/.ready: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet uv
	$(@D)/bin/uv pip install --quiet --python $(@D) $(INSTALLED)
	touch $@

clean:
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .hypothesis .coverage* build dist
