# One entry for each habit. `make help` lists them.
# Build products and logs live in DRAWBRIDGE_CACHE (default: $XDG_CACHE_HOME/drawbridge), never in the checkout.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := $(wildcard allocator analysis certs cli cluster dashboard dra node serving webhook)
CHECKED := $(PACKAGES) $(wildcard tests e2e bench docs)

# Code compiled by Python stays in the virtual environment. The flags of Go builds are equal, so that modules share compiled packages.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(abspath $(VENV))/bytecode
export GOFLAGS := -trimpath -mod=readonly -buildvcs=false
export GOTOOLCHAIN := local
export CGO_ENABLED := 0
CACHE := $(or $(DRAWBRIDGE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/drawbridge)

# The suites of `make test` and `make test-all`. Each suite writes its numbers into a file of RESULTS; a suite that crashes leaves `0 1`.
RESULTS := $(abspath $(VENV))/results
GATES := gate-lint gate-type gate-arch
CLUSTERS := suite-cluster suite-gated suite-bridged suite-driven
# The unit tests: a suite for each of the largest folders, and one for all others.
LARGEST := allocator cli dashboard dra webhook
UNIT := $(LARGEST:%=suite-unit-%) suite-unit-others
# Run suites at the same time, with variables for all of them. The last line has the totals.
define run_suites
@rm -rf $(RESULTS); mkdir -p $(RESULTS); for suite in $(1); do echo 0 1 >$(RESULTS)/$$suite; done
@$(MAKE) --jobs=10 --keep-going --no-print-directory $(1) MYPY_CACHE_DIR=$(CACHE)/types $(2) || true
@awk '{p += $$1; f += $$2} END {print p+0 " passed, " f+0 " failed"; exit f || !p}' $(RESULTS)/*
endef
# A suite that is one command, and a suite of the tests with these marks (conftest.py writes the numbers).
command_suite = $(1) && echo 1 0 >$(RESULTS)/$@
pytest_suite = -$(BIN)/python -m pytest -q -rfEs --continue-on-collection-errors --results=$(RESULTS)/$@ $(PYTEST_OPTIONS) -m $(1)
# `make test` leaves out the tests with the mark `whole`.
CI_MARKS := not (live or real or node or long)
UNIT_MARKS := $(CI_MARKS) and not whole
# In `make test-all`: all random cases, which share two cores with builds, so their time limit is longer; skipped tests fail; the packages of Debian bring the browser. Programs of Kubernetes run for minutes, so their garbage collectors may run rarely.
EVERYTHING := UNIT_MARKS="$(CI_MARKS)" BROWSER_FROM=gate-machine GOGC=400 PYTEST_OPTIONS="--no-skips --hypothesis-profile=all --timeout=600" --output-sync=target

.PHONY: help setup run test test-all record fmt lint lint-python type arch generate e2e cluster cluster-down binaries bridge bench soak chaos fuzz long never lock release clean browser warm $(GATES) $(CLUSTERS) $(UNIT) suite-oracle gate-machine gate-programs gate-referees gate-go

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "%-16s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Set-up is one stamp file: it is redone when the pins change, and a set-up that was killed leaves no stamp.
setup: $(VENV)/.ready ## Make .venv with everything in it, from requirements.lock (hashes checked)

$(VENV)/.ready: requirements.lock requirements.build.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else f"drawbridge needs Python 3.11 or newer, this is {v.major}.{v.minor}: set PYTHON=/path/to/python3.11")'
	@rm -f $@; test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setup: installing the pinned packages into $(VENV)"
	@if $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.build.lock; then \
	    $(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock && \
	    $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .; \
	  else \
	    echo "setup: uv is not to be had, going on with pip"; \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock && \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .; \
	  fi
	@touch $@

run: setup ## The main job on the embedded default: a dozen legacy pods through the real webhook
	$(BIN)/drawbridge demo

test: setup browser ## The tests that run anywhere: no Go, no root, minutes; ends with `N passed, N failed`
	$(call run_suites,$(UNIT) $(GATES),--output-sync=target)

test-all: setup ## Every test, real cluster included (Linux, root, Go; INSTALL=1 brings missing Debian packages)
	$(call run_suites,$(UNIT) gate-machine gate-programs gate-referees $(GATES) gate-go suite-oracle $(CLUSTERS),$(EVERYTHING) AFTER="$(UNIT)")

e2e: setup ## Only the tests on the real control plane and node
	$(call run_suites,gate-machine gate-programs $(CLUSTERS),$(EVERYTHING))

warm: setup # Otherwise six suites would compile the same modules at the same time
	@$(BIN)/python -m pytest -q tests/warm.py >/dev/null || true

# More suites than cores, because tests wait for processes and sockets. Each suite imports and collects only its own tests.
$(UNIT): suite-unit-%: browser warm
	$(call pytest_suite,"$(UNIT_MARKS)" $(if $(filter others,$*),tests $(LARGEST:%=--ignore=tests/%),tests/$*))

# The oracle tests keep one core busy; the cluster tests mostly wait, each suite on a control plane of its own.
suite-oracle: gate-referees | $(AFTER)
	$(call pytest_suite,"(oracle or live) and not (real or node or long)" --timeout=300 tests)

suite-oracle: export DRAWBRIDGE_REFEREES := compared

CLUSTER_TESTS := (real or node) and not long
BRIDGED := e2e/bridge
DRIVEN := e2e/driver e2e/installed
suite-cluster: gate-programs | $(AFTER)
	$(call pytest_suite,"$(CLUSTER_TESTS) and not gated" --timeout=300 tests e2e $(addprefix --ignore=,$(BRIDGED) $(DRIVEN)))

suite-gated: gate-programs | $(AFTER)
	$(call pytest_suite,"$(CLUSTER_TESTS) and gated" --timeout=300 e2e)

suite-bridged: gate-programs | $(AFTER)
	$(call pytest_suite,"$(CLUSTER_TESTS) and not gated" --timeout=300 $(BRIDGED))

suite-driven: gate-programs | $(AFTER)
	$(call pytest_suite,"$(CLUSTER_TESTS) and not gated" --timeout=300 $(DRIVEN))

gate-lint gate-type gate-arch: gate-%:
	$(call command_suite,$(MAKE) $(patsubst lint,lint-python,$*))

gate-go:
	$(call command_suite,$(MAKE) bridge && cd tests/oracle && test -z "$$(gofmt -l .)" && go vet ./...)

gate-machine:
	$(call command_suite,$(BIN)/python -m e2e.ground.packages)

gate-programs: gate-machine
	$(call command_suite,nice -n 10 $(BIN)/python -m e2e.build >/dev/null)

gate-referees:
	$(call command_suite,nice -n 10 $(BIN)/python -m tests.oracles)

browser: setup $(BROWSER_FROM) # The driver of the browser is half as large as all other packages
	@if command -v chromium chromium-browser >/dev/null; then \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tests/browser.lock || echo "the tests in a browser are left out"; fi

record: setup ## Ask Kubernetes' Go code what `make test` answers from tests/oracle/recorded (Go)
	DRAWBRIDGE_REFEREES=record $(BIN)/python -m pytest -q -m "oracle and not (live or real or node or long)" --timeout=300 tests

fmt: setup ## Format the Python and Go code
	$(BIN)/ruff format --quiet $(CHECKED)
	$(BIN)/ruff check --quiet --fix --unsafe-fixes --select I,UP $(CHECKED)
	@if command -v gofmt >/dev/null; then gofmt -l -w $$(git ls-files '*.go'); fi

lint: lint-python ## Lint: ruff, and staticcheck where there is Go (minutes the first time, then seconds)
	@if command -v go >/dev/null; then \
	  for module in bridge tests/oracle; do (cd $$module && go tool -modfile=$(CURDIR)/tests/staticcheck/go.mod staticcheck ./...); done; \
	else echo "lint: go is not on PATH, so the Go code was not checked"; fi

lint-python: setup ## Lint the Python code only (ruff), as `make test` does
	$(BIN)/ruff format --quiet --check $(CHECKED)
	$(BIN)/ruff check $(CHECKED)

type: setup ## Check types (mypy --strict)
	$(BIN)/mypy

arch: setup ## Check the layers of imports (import-linter)
	$(BIN)/lint-imports

generate: setup ## Write every file that is made from the code: schemas, tables of docs, webhook configurations
	$(BIN)/python -m docs.generate

binaries: setup ## Build Kubernetes, etcd, containerd and the test drivers into the cache
	$(BIN)/python -m e2e.build

# Only folders with tests: the race detector would compile the program with all of kube-scheduler.
bridge: setup ## The scheduler with our plugin (bridge/): vet, its tests under the race detector, and the program
	cd bridge && test -z "$$(gofmt -l .)" && go vet ./... && CGO_ENABLED=1 go test -race . ./plugin ./sidecar
	cd bridge && for pins in v*.mod; do minor=$${pins%.mod}; \
	  GOTOOLCHAIN=$$(sed -n 's/^toolchain //p' $$pins) go test -modfile=$$pins -tags=minor$${minor#*.} . ./plugin ./sidecar; done
	$(BIN)/python -m e2e.build drawbridge-scheduler

cluster: setup ## Start a real cluster on this machine and print its KUBECONFIG
	$(BIN)/python -m e2e.up

cluster-down: setup ## End the cluster that `make cluster` started
	$(BIN)/python -m e2e.down

bench: setup ## Benchmarks beside the peers; prints the table of docs/comparison.md
	$(BIN)/python -m bench

soak: setup ## A live webhook between hostile reviews, flat in memory and descriptors: 10 minutes and 10,000 hostile ones, or MINUTES=60
	$(BIN)/python -m bench.webhook.soak --minutes $(or $(MINUTES),10)

chaos: setup ## Churn on a real control plane while all of it and of ours is killed in turn: 10 minutes, or MINUTES=3, NODES=100, SEED=1, ONLY=etcd, NODE=no (without the real node, which needs root)
	$(BIN)/python -m e2e.chaos --minutes $(or $(MINUTES),10) --nodes $(or $(NODES),100) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only "$(ONLY)") $(if $(filter no,$(NODE)),--no-node)

fuzz: setup ## Look for texts that break quantities, versions, selectors, manifests: a minute each, or SECONDS=600
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),60)

long: setup ## The long forms of the differential and property suites
	DRAWBRIDGE_REFEREES=live $(BIN)/python -m pytest -q -m long --timeout=3600 --hypothesis-profile=all

never: setup ## No false denial: 20,000 random fleets and claims beside Kubernetes' own allocator, or DRAWBRIDGE_CASES=1000
	DRAWBRIDGE_REFEREES=live $(BIN)/python -m pytest -q -m "long or live" --timeout=3600 tests/webhook/placement/test_never_differential.py tests/webhook/placement/test_never_by_name.py

lock: setup ## Pin the newest allowed versions again, with hashes
	$(BIN)/uv pip compile pyproject.toml --extra fast --extra node --group test --group lint --group build --generate-hashes \
	  --universal --python-version 3.11 --no-header --no-annotate --quiet --upgrade -o requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra fast --extra node --constraint requirements.lock --generate-hashes \
	  --universal --python-version 3.11 --no-header --no-annotate --quiet -o requirements.runtime.lock
	$(BIN)/uv pip compile --group build --constraint requirements.lock --generate-hashes \
	  --universal --python-version 3.11 --no-header --no-annotate --quiet -o requirements.build.lock
	$(BIN)/uv pip compile --group pyproject.toml:browser --constraint requirements.lock --generate-hashes \
	  --universal --python-version 3.11 --no-header --no-annotate --quiet --upgrade -o tests/browser.lock

# It uses only the files of HEAD, with the commit's time and in a fixed order, so that equal commits give equal bytes.
release: SOURCE := build/release
release: export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct)
release: setup ## Package, chart and checksums of a release, from HEAD: TO=dist (docs/versions.md)
	rm -rf $(SOURCE); mkdir -p $(SOURCE)/source $(or $(TO),dist)
	git archive HEAD | tar -x -C $(SOURCE)/source
	cd $(SOURCE)/source && $(abspath $(BIN))/python -m hatchling build -t wheel -t sdist -d $(abspath $(or $(TO),dist)) && \
	  $(abspath $(BIN))/python -m cli.main manifests -q --chart ../drawbridge
	tar --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime=@0 -C $(SOURCE) -c drawbridge | \
	  gzip -n >$(or $(TO),dist)/drawbridge-$$(sed -n 's/^VERSION = "\(.*\)"/\1/p' webhook/names.py).tgz
	cd $(or $(TO),dist) && sha256sum $$(ls | grep -v SHA256SUMS) | tee SHA256SUMS

clean: ## Remove .venv and the checkout's caches (the shared build cache stays)
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
