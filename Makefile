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

.PHONY: test unit vet fmt-check tidy-check race-check lint cover fuzz soak mutate fmt tidy

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

# The share of each package's statements in a profile, in which a statement is listed once for each test binary.
shares = awk 'NR > 1 { size[$$1] = $$2; if ($$3 > 0) hit[$$1] = 1 } \
	END { for (s in size) { p = s; sub("/[^/]*:.*", "", p); all[p] += size[s]; if (s in hit) reached[p] += size[s] } \
	for (p in all) printf "%6.1f %%  %s\n", 100 * reached[p] / all[p], p }'

## cover: the share of each package's statements that the tests of its module reach; details in each module's cover.out
cover:
	$(call each,cover,out=$$(GOWORK=off go test -coverpkg=./... -coverprofile=cover.out ./... 2>&1) \
		|| { printf "%s\n" "$$out"; exit 1; }; $(shares) cover.out | sort -k 3)

## fuzz: every fuzz test, each for FUZZTIME
fuzz:
	$(call each,fuzz,pkgs=$$(go list ./...) && for pkg in $$pkgs; do \
		names=$$(go test -list "^Fuzz" "$$pkg") || exit 1; \
		for name in $$names; do case $$name in (Fuzz*) \
			go test -run "^$$" -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5x "$$pkg" || exit 1;; \
		esac; done; \
	done)

# How long `make soak` simulates engines, and how many items then stream through one.
SOAKTIME ?= 10m
SOAKITEMS ?= 20000000

## soak: random engines for SOAKTIME, in virtual time and then on the real clock, and SOAKITEMS items through the memory tests
soak: race-check
	GOWORK=off go test $(RACE) -count=1 -timeout 0 ./internal/sim -run 'RandomEngines|RealClock' -sim.for=$(SOAKTIME)
	GOWORK=off go test -v -count=1 -timeout 0 ./internal/sim -run 'Flat|ManySleepers' -sim.items=$(SOAKITEMS)

## mutate: some seventy small faults in a copy of the library, one at a time; the tests must catch each
mutate:
	GOWORK=off go run ./internal/mutate

## fmt: format all Go files
fmt:
	@"$$(go env GOROOT)/bin/gofmt" -l -w .

## tidy: bring every go.mod and go.sum up to date
tidy:
	$(call each,tidy,GOWORK=off go mod tidy)
