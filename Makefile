.DEFAULT_GOAL := help
.PHONY: help run demo check lint test race fuzz fault sim crash crash-code crash-boxes storm sdk-tests bench soak soak-models golden guest build

FUZZTIME ?= 60s
FAULTTIME ?= 60s
TIME ?= 30m
SEEDS ?= 10000
SEED ?= 0
KILLS ?= 0
ALARMS ?= 100000
RUNS ?= 1
STATICCHECK = go run honnef.co/go/tools/cmd/staticcheck@v0.7.0

help:   ## list the targets
	@sed -n 's/^\([a-z-]*\): *## */\1\t/p' $(MAKEFILE_LIST) | expand -t 12

build:  ## build bin/skep, and beside it the driver that runs in each sandbox
	go build -o bin/skep ./cmd/skep
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o bin/skep-driver ./cmd/skep-driver

run:    ## start a server on 127.0.0.1:4747
	go run ./cmd/skep serve

demo:   ## start a server, push an agent and stream its run
	go run ./cmd/skep demo

check:  ## format, vet, lint, architecture, tidy, and a clean tree
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run gofmt -w on these"; exit 1; }
	go vet ./...
	GOOS=wasip1 GOARCH=wasm go vet ./abi ./sdk/go
	GOOS=darwin go build ./...
	GOOS=windows go build -o /dev/null ./cmd/skep
	$(MAKE) lint
	go test ./internal/arch
	go mod tidy -diff
	git diff --exit-code

lint:   ## staticcheck
	$(STATICCHECK) ./...

test:   ## every test, as CI runs them
	scripts/test

race:   ## the Go tests under the race detector
	go test -race ./...

fuzz:   ## every fuzz target for FUZZTIME
	scripts/fuzz $(FUZZTIME)

fault:  ## kill, cut power, fill disks and flip bits under both stores, each for FAULTTIME; as root
	go run ./internal/fault --for $(FAULTTIME)

sim:    ## simulate instances and runs over a store that fails: SEEDS worlds, or one SEED with all that happens in it
	go test ./internal/sim -count=1 -timeout=0 $(if $(filter-out 0,$(SEED)),-v) -run Seeds -seeds=$(SEEDS) -seed=$(SEED)

crash:  ## kill servers under load for TIME, or KILLS times, and look at what is left; more flags in FLAGS
	go run ./internal/crash --for $(TIME) --kills $(KILLS) $(FLAGS)

crash-code: ## the same with scripts of code mode whose calls a person answers for
	go run ./internal/crash --code --for $(TIME) --kills $(KILLS) $(FLAGS)

crash-boxes: ## kill servers, containers and the drivers in them while a command-line agent works there; needs root and Docker
	go run ./internal/crash --boxes --for $(TIME) --kills $(KILLS) $(FLAGS)

storm:  ## ALARMS alarms that are due within a minute, with a kill in the middle; more flags in FLAGS
	go run ./internal/crash --storm $(ALARMS) $(FLAGS)

sdk-tests: ## the vendors' own tests of their SDKs for Go, run through a server; the first time they take minutes and 3 GB to compile
	$(MAKE) build
	go run -C internal/sdktests . --skep $(CURDIR)/bin/skep $(FLAGS)

bench:  ## print each figure of docs/design/performance.md beside its target, of RUNS runs; more flags in FLAGS
	go run ./internal/bench --runs $(RUNS) $(FLAGS)

soak:   ## ten apps, one of them hostile, for TIME; more flags in FLAGS
	go run ./internal/soak --for $(TIME) $(FLAGS)

soak-models: ## clients that ask models for TIME, a fifth of whom go away in the middle, with a kill in the middle; more flags in FLAGS
	go run ./internal/crash --models --for $(TIME) $(FLAGS)

golden: ## rewrite golden files
	go test ./... -run Golden -update

guest:  ## rebuild the script guest's prelude from its sources
	cd host/script/guest && npm ci --no-audit --no-fund && npm run build
