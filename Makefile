# `make test` is what the README promises and what CI runs. Every target goes through all modules of go.work, so a new
# module is picked up by adding it there and nowhere else.

# The race detector needs a C compiler. Without one, `make test RACE=` still runs everything else.
RACE ?= -race
# How long `make fuzz` gives to each fuzz test.
FUZZTIME ?= 10s

# Set here, so that no setting of the caller's shell can hide a module. No version stamping: in a checkout that belongs
# to another user git refuses to answer, and go would refuse to build.
export GOWORK := $(CURDIR)/go.work
export GOFLAGS := $(shell go env GOFLAGS) -buildvcs=false

# $(call each,WORDS,COMMAND) says WORDS and runs COMMAND in the directory of each module, and stops at the first failure.
# The list is taken first: a `go list` that fails must not look like a workspace without modules.
each = @set -eu; modules=$$(go list -m -f '{{.Dir}}'); \
	printf '%s\n' "$$modules" | while read -r dir; do \
		printf '%s .%s\n' '$(1)' "$${dir\#$(CURDIR)}"; \
		(cd "$$dir" && $(2)) </dev/null || exit 1; \
	done

.PHONY: test unit vet fmt-check tidy-check race-check lint cover fuzz soak fmt tidy

## test: everything a change must pass: format, go.mod files, vet, and the tests of all modules under the race detector
test: fmt-check tidy-check vet unit

# Each module is tested as its users build it, by its own go.mod; go vet builds it as the workspace does.
unit: race-check
	$(call each,test,GOWORK=off go test $(RACE) ./...)

vet:
	$(call each,vet,go vet ./...)

fmt-check:
	@files=$$("$$(go env GOROOT)/bin/gofmt" -l .) && if [ -n "$$files" ]; then \
		printf 'not formatted; run `make fmt`:\n%s\n' "$$files"; exit 1; fi

tidy-check:
	$(call each,tidy,GOWORK=off go mod tidy -diff)

race-check:
	@if [ -n "$(RACE)" ] && [ "$$(go env CGO_ENABLED)" != 1 ]; then \
		echo 'the race detector needs cgo and a C compiler: install gcc, or run `make test RACE=` to go without'; exit 1; fi

## lint: staticcheck at the version pinned in internal/tools, with the settings of staticcheck.conf
lint:
	$(call each,lint,GOWORK=off go tool -modfile='$(CURDIR)/internal/tools/go.mod' staticcheck ./...)

## cover: the share of each module's statements that its tests reach; details in each module's cover.out
cover:
	$(call each,cover,GOWORK=off go test -coverpkg=./... -coverprofile=cover.out ./... \
		&& GOWORK=off go tool cover -func=cover.out | tail -n 1)

## fuzz: every fuzz test, each for FUZZTIME
fuzz:
	$(call each,fuzz,pkgs=$$(go list ./...) && for pkg in $$pkgs; do \
		names=$$(go test -list "^Fuzz" "$$pkg") || exit 1; \
		for name in $$names; do case $$name in (Fuzz*) \
			go test -run "^$$" -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5x "$$pkg" || exit 1;; \
		esac; done; \
	done)

## soak: random engines from random seeds for ten minutes, and 20 million items through the memory tests
soak: race-check
	GOWORK=off go test $(RACE) -count=1 -timeout 60m ./internal/sim -sim.for=10m -sim.items=20000000

## fmt: format all Go files
fmt:
	@"$$(go env GOROOT)/bin/gofmt" -l -w .

## tidy: bring every go.mod and go.sum up to date
tidy:
	$(call each,tidy,GOWORK=off go mod tidy)
