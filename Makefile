# Everything here needs Go alone, but for `test`, `triton` and `e2e`, which set up a real Triton with Python 3.11.
# What is installed goes to the ignored folder .cache, pinned below, from the Go module proxy.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CACHE := $(CURDIR)/.cache
BIN := $(CACHE)/bin
GO ?= go
ARGS ?=
PKG ?= ./...
FUZZTIME ?= 30s
BENCH ?= .
COUNT ?= 6
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# The image may be this large, in bytes; the binary is nearly all of it.
MAX_SIZE := 28000000
BASELINE := loadtest/baseline/bench.txt

GOLANGCI_LINT := v2.15.0
GOTESTSUM := v1.13.0
GOVULNCHECK := v1.9.0
BENCHSTAT := v0.0.0-20260908200009-22c9c6c9d4da

# The race detector is written in C and needs a compiler for it; without one the tests run without it, and say so.
RACE := $(shell command -v $$($(GO) env CC) >/dev/null 2>&1 && echo -race)

##@ To use it
.PHONY: help
help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z][a-z0-9-]*:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: run
run: ## the gateway in front of the embedded model server, ready to be tried; ARGS=--tour shows it around
	@$(GO) run ./cmd/gateway sandbox $(ARGS)

.PHONY: triton
triton: ## a real Triton (CPU) on triton-models/ in the foreground, until Ctrl-C
	@rig/triton.sh $(ARGS)

##@ To change it
.PHONY: test
test: lint check-gen unit e2e chaos-short ## all that CI runs: lint, generated code, unit tests with -race, end to end on real parts, faults under load

.PHONY: lint
lint: $(BIN)/.golangci-lint-$(GOLANGCI_LINT) ## style, bugs, and who may import whom
	$(BIN)/golangci-lint run $(PKG)

.PHONY: fmt
fmt: $(BIN)/.golangci-lint-$(GOLANGCI_LINT) ## format the Go code
	$(BIN)/golangci-lint fmt

.PHONY: unit
unit: $(BIN)/.gotestsum-$(GOTESTSUM) redis prometheus ## unit tests, with the seeds of the fuzz tests, under the race detector
	$(if $(RACE),,@echo "no C compiler: testing without the race detector")
	$(BIN)/gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg -- $(RACE) -timeout 30m $(PKG)
	$(if $(RACE),$(GO) test ./pkg/internal/socket && $(GO) test -run 'NextToNoAllocation|NobodyNoticesThatRedis|AConnectionThatHasEnded' ./pkg/gateway ./pkg/redis)
	$(GO) test -C proto/gen ./...

.PHONY: redis
redis: ## a real Redis for the tests of limits, installed once
	@rig/redis.sh >/dev/null

.PHONY: prometheus
prometheus: ## a real Prometheus for the tests of timeouts, unpacked once
	@rig/prometheus.sh >/dev/null

.PHONY: slow
slow: ## what takes minutes because it has to: a call that is silent for 200 s, limits of ten million users, ten thousand slow clients
	SLOW=1 $(GO) test -run TenMillionUsers -v ./pkg/stage/limit
	SLOW=1 $(GO) test -run ThousandsOfSlowClients -v ./pkg/front/grpcfront
	rig/run.sh slow

.PHONY: quick
quick: ## unit tests of what changed, without the race detector
	$(GO) test $(PKG)

.PHONY: race
race: $(BIN)/.gotestsum-$(GOTESTSUM) ## unit tests three times over under the race detector, in shuffled order
	$(BIN)/gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg -- -race -count 3 -shuffle on $(PKG)

.PHONY: e2e
e2e: ## the contract, with real clients: in front of a real Triton and of the embedded server
	rig/run.sh all

.PHONY: chaos
chaos: ## faults under load: servers killed, frozen, slow and restarted, networks that break, reloads; some ten minutes
	@rig/setup.sh
	$(GO) run ./rig/chaos --long $(ARGS)

.PHONY: chaos-short
chaos-short: ## the six of them that matter most, in a minute and a half
	@rig/setup.sh
	$(GO) run ./rig/chaos $(ARGS)

.PHONY: fuzz
fuzz: ## every fuzz test there is, FUZZTIME (30s) each
	@$(GO) list -f '{{$$d := .Dir}}{{range .TestGoFiles}}{{$$d}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$$d}}/{{.}}{{"\n"}}{{end}}' $(PKG) \
	| { grep . || true; } | xargs -r grep -Ho '^func Fuzz[A-Za-z0-9_]*' | while IFS=: read -r file func; do \
		name=$${func#func }; dir=$$(dirname "$$file"); \
		echo "== $${dir#$(CURDIR)/} $$name"; \
		$(GO) test "$$dir" -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) </dev/null; \
	done

.PHONY: gen
gen: ## generate the code of proto/ anew
	$(GO) run -C proto/gen .

.PHONY: check-gen
check-gen: ## fail when generated code is not what its source says
	$(GO) run -C proto/gen . -check

.PHONY: vuln
vuln: $(BIN)/.govulncheck-$(GOVULNCHECK) ## known vulnerabilities that the code can reach; asks vuln.go.dev
	$(BIN)/govulncheck $(PKG)

.PHONY: cover
cover: ## coverage of the unit tests, by function, lowest first
	@mkdir -p $(CACHE)
	$(GO) test -coverprofile $(CACHE)/cover.out -coverpkg ./pkg/... $(PKG) >/dev/null
	@$(GO) tool cover -func $(CACHE)/cover.out | awk '{print $$NF, $$1, $$2}' | sort -n

##@ To measure it
.PHONY: bench
bench: ## benchmarks for benchstat into .cache/bench.txt; BENCH=regexp, COUNT=6, PKG=./pkg/wire
	@mkdir -p $(CACHE)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) $(PKG) | grep -v -e '^?' -e '^ok' -e '^PASS' | tee $(CACHE)/bench.txt

.PHONY: bench-compare
bench-compare: $(BIN)/.benchstat-$(BENCHSTAT) ## what the last `make bench` says against loadtest/baseline
	@test -f $(BASELINE) || { echo "there is no $(BASELINE); make bench bench-baseline writes one"; exit 1; }
	@test -f $(CACHE)/bench.txt || { echo "nothing was measured yet; make bench does"; exit 1; }
	$(BIN)/benchstat $(BASELINE) $(CACHE)/bench.txt

.PHONY: bench-baseline
bench-baseline: ## make the last `make bench` what later ones are compared with
	@mkdir -p $(dir $(BASELINE))
	cp $(CACHE)/bench.txt $(BASELINE)

##@ To ship it
.PHONY: build
build: ## the static binary, as the image has it, into .cache/gateway
	CGO_ENABLED=0 $(GO) build -tags grpcnotrace -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o $(CACHE)/gateway ./cmd/gateway

.PHONY: size
size: build ## how large the binary is; fails when the image would be over its limit
	@size=$$(wc -c <$(CACHE)/gateway); \
	awk -v s=$$size -v m=$(MAX_SIZE) 'BEGIN {printf "gateway: %.1f MB of %.1f MB\n", s/1e6, m/1e6; exit s > m}'

.PHONY: image-check
image-check: size ## the binary has all that an image without anything else needs: static, and it starts
	@$(GO) version -m $(CACHE)/gateway | grep -q 'CGO_ENABLED=0' || { echo "gateway is not static"; exit 1; }
	@env -i $(CACHE)/gateway version

.PHONY: tools
tools: $(BIN)/.golangci-lint-$(GOLANGCI_LINT) $(BIN)/.gotestsum-$(GOTESTSUM) $(BIN)/.govulncheck-$(GOVULNCHECK) $(BIN)/.benchstat-$(BENCHSTAT) ## install all tools now

.PHONY: clean
clean: ## remove what was built and measured; tools and the real Triton stay
	rm -rf $(CACHE)/gateway $(CACHE)/cover.out $(CACHE)/bench.txt

# A tool is installed when there is no stamp of its version; one that is there in that version is kept as it is.
# $(1) name, $(2) version, $(3) module, $(4) package
define tool
$(BIN)/.$(1)-$(2):
	@mkdir -p $(BIN)
	@if ! $(GO) version -m $(BIN)/$(1) 2>/dev/null | awk -v m=$(3) -v v=$(2) '$$$$1 == "mod" && $$$$2 == m && $$$$3 == v {ok = 1} END {exit !ok}'; then \
		echo "installing $(1) $(2), once"; GOBIN=$(BIN) GOFLAGS= $(GO) install $(4)@$(2); fi
	@rm -f $(BIN)/.$(1)-*
	@touch $$@
endef
$(eval $(call tool,golangci-lint,$(GOLANGCI_LINT),github.com/golangci/golangci-lint/v2,github.com/golangci/golangci-lint/v2/cmd/golangci-lint))
$(eval $(call tool,gotestsum,$(GOTESTSUM),gotest.tools/gotestsum,gotest.tools/gotestsum))
$(eval $(call tool,govulncheck,$(GOVULNCHECK),golang.org/x/vuln,golang.org/x/vuln/cmd/govulncheck))
$(eval $(call tool,benchstat,$(BENCHSTAT),golang.org/x/perf,golang.org/x/perf/cmd/benchstat))
