# The targets of mega. `make` alone lists them.
#
# Everything covers every module of go.work. Test servers are started by the
# tests themselves, on free loopback ports.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The modules, and the pattern that names every package of each.
MODULES  = $(shell go list -m -f '{{.Dir}}')
PACKAGES = $(addsuffix /...,$(MODULES))

# The systems that the framework builds for beside this one. What is compiled for
# them is only looked at, so it is not optimised, which takes a third off.
FOREIGN = $(filter-out $(shell go env GOHOSTOS),linux darwin windows)
VET_FOREIGN = go vet -gcflags='all=-N -l' ./...

# These packages take longest. They start first, so that none of them runs alone at
# the end while the other processors wait.
LONGEST = ./drivers/redis ./drivers/cluster ./lock/locktest ./bus/bustest ./internal/testkit/e2e ./boot ./drivers/nats ./docs/guide ./cmd/mega ./sample/crud ./lock/guard/enginetest

# The tests in a browser are a module outside go.work: the browser's protocol takes
# longer to compile than the framework.
BROWSER = internal/testkit/browser

# Most packages wait most of the time, for a TTL or for a process to end, so two of
# them share a processor.
AT_ONCE ?= $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))

# The target vet looks at the tests too, and takes a sixth of the time of make test:
# it is a step of its own. These binaries are not debugged, and without the data for
# a debugger they take two thirds of the time to link.
GO_TEST = go test -vet=off -ldflags='-s -w'

# MEGA_TEST_SCALE multiplies every count in the tests: 1 is `make test`.
# The race detector costs five to ten times as much for the same work.
export MEGA_TEST_SCALE ?= 1
RACE_SCALE    ?= 0.2
SOAK_SCALE    ?= 20
FUZZTIME      ?= 30s
GOLANGCI_LINT ?= v2.15.0

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## serve the sample shop on http://127.0.0.1:8080
	go build -buildvcs=false -o bin/crud ./sample/crud
	@cd sample/crud && MEGA_ENV=$${MEGA_ENV:-dev} exec ../../bin/crud

.PHONY: test
test: tools ## run every test of every module
	$(GO_TEST) -p $(AT_ONCE) -timeout 30m $(LONGEST) $(PACKAGES)

.PHONY: race
race: tools vet ## run every test under -race, with a fifth of the counts (RACE_SCALE)
	@GOWORK=off go list -deps ./... >/dev/null # downloads the dependencies of the framework alone: a test that builds it has no network
	MEGA_TEST_SCALE=$(RACE_SCALE) $(GO_TEST) -race -p $(AT_ONCE) -timeout 30m $(LONGEST) $(PACKAGES)

.PHONY: e2e
e2e: tools ## open every page of the samples in Chromium, pictures in bin/pages
	@.ci/browser
	cd $(BROWSER) && GOWORK=off go vet . && GOWORK=off go test -count=1 -timeout 20m .

.PHONY: soak
soak: tools ## run every test with twenty times the count (SOAK_SCALE), for hours
	MEGA_TEST_SCALE=$(SOAK_SCALE) go test -count=1 -timeout 6h $(PACKAGES)
	MEGA_TEST_SCALE=$(SOAK_SCALE) go test -count=1 -race -timeout 12h $(PACKAGES)

.PHONY: mutants
mutants: ## run every mutation that a suite has to notice; make test runs a twentieth of them
	MEGA_TEST_SCALE=20 go test -count=1 -timeout 30m -run Mutat ./bus/... ./lock/... ./limit/... ./drivers/...

# Before Go 1.27 a target may fail with "context deadline exceeded" alone at the end of
# its time (go.dev/issue/75804). It has found nothing then.
.PHONY: fuzz
fuzz: ## run each fuzz target for 30s (FUZZTIME)
	@grep -roE --include='*_test.go' '^func Fuzz\w+' . | sed 's/:func / /' | { \
		failed=; \
		while read -r file target; do \
			echo "$$target in $$(dirname "$$file")"; \
			(cd "$$(dirname "$$file")" && go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) .) || failed="$$failed $$target"; \
		done; \
		test -z "$$failed" || { echo "failed:$$failed"; exit 1; }; \
	}

.PHONY: bench
bench: ## measure the locks and the bus beside their peers (ARGS='-row memory -quick')
	@.ci/tools bench
	cd bench && go run . $(ARGS)

.PHONY: vet
vet: ## go vet of every module, for this system
	@for m in $(MODULES); do (cd "$$m" && GOWORK=off go vet ./...); done

# For another system the standard library and every dependency are compiled too,
# two minutes of a first run for each: this is a target of its own, and not of test.
.PHONY: vet-foreign
vet-foreign: ## go vet of the framework for the other systems of Linux, macOS and Windows
	@for os in $(FOREIGN); do GOOS=$$os GOWORK=off $(VET_FOREIGN); done
	@GOARCH=386 GOWORK=off go build ./... # an int of 32 bits

# To check a sample for a system takes compiling its SQLite for that system, which
# is minutes of a first run.
.PHONY: vet-all
vet-all: vet vet-foreign
	@for m in $(filter-out $(CURDIR),$(MODULES)); do for os in $(FOREIGN); do \
		(cd "$$m" && GOOS=$$os GOWORK=off $(VET_FOREIGN)); \
	done; done

.PHONY: lint
lint: vet-all bin/golangci-lint-$(GOLANGCI_LINT) ## gofmt, vet of every module for every system, tidiness, golangci-lint
	@test -z "$$(gofmt -l .)" || { gofmt -d .; exit 1; }
	@for m in $(MODULES) $(BROWSER); do (cd "$$m" && GOWORK=off go mod tidy -diff); done
	@for m in $(MODULES) $(BROWSER); do \
		(cd "$$m" && GOWORK=off $(CURDIR)/bin/golangci-lint-$(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml ./...); \
	done

.PHONY: tidy
tidy: ## go mod tidy and gofmt, in every module
	@for m in $(MODULES) $(BROWSER); do (cd "$$m" && GOWORK=off go mod tidy); done
	go work sync
	gofmt -w .

.PHONY: tools
tools:
	@.ci/tools

bin/golangci-lint-$(GOLANGCI_LINT):
	@echo "building golangci-lint $(GOLANGCI_LINT), once"
	@GOBIN=$(CURDIR)/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT)
	@mv bin/golangci-lint $@
