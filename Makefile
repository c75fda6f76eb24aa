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
# all tests and the whole package anew, which is a tenth of the run. One folder for all environments:
# those of one Python share what they compile. So do they what Hypothesis finds in the sources, for
# which it reads the whole package: 2 s of each program that has property tests in a folder of its own.
CACHED = PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(abspath build/bytecode) \
  HYPOTHESIS_STORAGE_DIRECTORY=$(abspath .hypothesis)
# Once for an environment: several workers at once would each compile the tests.
WARM := $(VENV)/.warm

# What an environment is made anew for: with parts of two interpreters it runs neither.
INTERPRETER = 'import sys; print(sys.base_prefix, sys.version)'

# How often `make hunt` tries the property tests.
ROUNDS ?= 20

.PHONY: bench crds demo docs test test-all ready ready-lowest check format soak clean coverage test-lowest fidelity webhooks control-plane helm hunt dist

# The main job, on the embedded API server or, with `make demo KUBECONFIG=...`, on that cluster. A
# KUBECONFIG in the environment is left alone: nobody's cluster should be used by accident.
demo: $(READY)
	$(BIN)/python examples/issue_tracker.py $(if $(filter command line,$(origin KUBECONFIG)),--kubeconfig $(KUBECONFIG))

# What a change needs while it is made: no tests that start programs, a fifth of the examples of the
# property tests. Those on a real control plane need KUBEBUILDER_ASSETS and are left out without it.
test: $(WARM)
	$(CACHED) $(BIN)/python $(PYTEST) -m 'not long and not programs' --hypothesis-profile=quick $(ARGS)

# All of them, with all examples.
test-all: $(WARM)
	$(CACHED) $(BIN)/python $(PYTEST) $(ARGS)

# Sets up what `make test` and `make test-all` need.
ready: $(WARM)

# `make -j 2 -O check` runs two of them at a time.
CHECKS := check-format check-lint check-words check-mypy check-pyright check-user-types check-imports
.PHONY: $(CHECKS)
check: $(CHECKS)
check-mypy: $(READY)
	$(BIN)/mypy
check-pyright: $(READY)
	$(BIN)/pyright --pythonpath $(BIN)/python
# After the check of the kit, of which it reads the cache.
check-user-types: $(READY) check-mypy
	$(BIN)/python hack/user_types.py
check-format: $(READY)
	$(BIN)/ruff format --check .
check-words: $(READY)
	$(BIN)/python hack/words.py
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

# Measures the kit beside its peers and writes docs/performance.md and docs/measurements.md; with ARGS,
# such as ARGS=--quick, it only prints. It has a virtual environment of its own, for the peers.
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

# The property tests, those of operators (`check_operator`) among them, with other examples than those
# that `make test` tries each time. With time to shrink what is found.
hunt: $(READY)
	for round in $$(seq $(ROUNDS)); do \
	  $(CACHED) $(BIN)/python $(PYTEST) -q -m 'hypothesis or histories' --hypothesis-profile=hunt --timeout=600 $(ARGS) || exit; \
	done

# The tests on the oldest versions of the dependencies that pyproject.toml allows.
test-lowest: .venv-lowest/.warm
	$(CACHED) .venv-lowest/bin/python $(PYTEST) $(ARGS)
ready-lowest: .venv-lowest/.warm

$(READY): INSTALLED = -e '.[testing,cli,tracing]' --group dev
.venv-bench/.ready: INSTALLED = -e '.[testing]' --group bench
.venv-docs/.ready: INSTALLED = -e '.[testing,cli,tracing]' --group docs
.venv-lowest/.ready: INSTALLED = --resolution lowest-direct -e '.[testing,cli,tracing]'
# Of these the newest.
.venv-lowest/.ready: RUNNERS = pytest-timeout pytest-xdist
$(READY) .venv-bench/.ready .venv-docs/.ready .venv-lowest/.ready: pyproject.toml
	test "$$($(@D)/bin/python -c $(INTERPRETER) 2>&1)" = "$$($(PYTHON) -c $(INTERPRETER))" || $(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/pip install --quiet uv
	$(@D)/bin/uv pip install --quiet --python $(@D) $(INSTALLED)
	$(if $(RUNNERS),$(@D)/bin/pip install --quiet $(RUNNERS))
	touch $@

# What cannot be collected is the run's own to say.
$(WARM) .venv-lowest/.warm: %/.warm: %/.ready
	-$(CACHED) $(@D)/bin/python -m pytest --collect-only -q -n 0 $(ARGS) >$(@D)/collected 2>&1
	touch $@

clean:
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .hypothesis .coverage* build dist
