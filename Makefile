# Targets of the project; `make` or `make help` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
.PHONY: help run demo test test-ci check fmt tidy vet lint race bench servers-up servers-down servers-status servers-env \
	compiler browser clean

SERVERS := adapters/servers/servers.sh
PACKAGES ?= ./...
# -p 2: packages share one set of servers on two cores; more at once only makes them wait for each other
TEST_FLAGS ?= -p 2 -timeout 20m

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# What `make servers-env` exports stays in the shell that took it; these two stay embedded all the same.
define embedded-only
	dropped=0
	for name in "$${!SLUICE_@}"; do
		case $$name in
		SLUICE_LISTEN_* | SLUICE_DATA_DIR | SLUICE_DEMO_* | SLUICE_LOG_LEVEL | SLUICE_INSTANCE_ID | SLUICE_EMBEDDED_PUBLIC) ;;
		*) unset "$$name"; dropped=$$((dropped + 1)) ;;
		esac
	done
	if ((dropped)); then echo "everything embedded: $$dropped SLUICE_ settings of this shell are not used here" >&2; fi
endef

run: ## the service on this machine, everything embedded
	@mkdir -p .sluice
	go build -o .sluice/sluice ./app
	$(embedded-only)
	exec .sluice/sluice serve

demo: ## a whole sale by simulated people, with a verdict table
	@$(embedded-only)
	go run ./app demo

test: servers-up browser ## all tests, against the real servers, which stay up for the next run
	@eval "$$($(SERVERS) test-env)"
	go test $(TEST_FLAGS) $(PACKAGES)

test-ci: ## all tests, then the servers are stopped
	@trap '$(SERVERS) down' EXIT
	$(MAKE) --no-print-directory test

check: fmt tidy vet lint race ## what must hold before a commit; needs no servers

fmt: ## are the sources formatted?
	@unformatted=$$(git ls-files --cached --others --exclude-standard -- '*.go' | xargs -r ls -d 2>/dev/null | xargs -r gofmt -l)
	[[ -z $$unformatted ]] || { printf 'not formatted (gofmt -w):\n%s\n' "$$unformatted" >&2; exit 1; }

tidy: ## does go.mod say exactly what the sources import?
	@go mod tidy -diff

vet: ## go vet
	@go vet $(PACKAGES)

lint: ## golangci-lint, built once per version into the user's cache
	@.tools/golangci-lint run

race: compiler ## the tests that need no servers, under the race detector
	@CGO_ENABLED=1 go test -race -short -timeout 20m $(PACKAGES)

bench: ## figures beside those of the usual libraries, in a table and in bench/out/summary.json; QUICK=1 for a look
	@go run ./bench/table $(if $(QUICK),-quick)

servers-up: ## install and start the real servers on loopback, and prepare them
	@$(SERVERS) up

servers-down: ## stop them
	@$(SERVERS) down

servers-status: ## a table of them; fails when any is down
	@$(SERVERS) status

servers-env: ## export lines for production mode: eval "$(make servers-env)"; SLUICE_STOCK=cluster for the cluster
	@$(SERVERS) env

compiler: ## the C compiler that the race detector needs
	@adapters/servers/compiler.sh >/dev/null

browser: ## the browser that the page's test drives
	@adapters/servers/chromium.sh >/dev/null

clean: ## remove what runs and benchmarks left in the tree
	@rm -rf .sluice bench/out sluice
