module github.com/penstock-go/penstock/bench

go 1.26.0

require (
	github.com/alitto/pond/v2 v2.7.1
	github.com/avast/retry-go/v4 v4.7.0
	github.com/cenkalti/backoff/v5 v5.0.3
	github.com/destel/rill v0.8.0
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/gammazero/workerpool v1.3.0
	github.com/go-analyze/charts v0.6.4
	github.com/panjf2000/ants/v2 v2.12.1
	github.com/penstock-go/penstock v0.0.0
	github.com/samber/lo v1.53.0
	github.com/sethvargo/go-limiter v0.7.1
	github.com/sourcegraph/conc v0.3.0
	go.uber.org/goleak v1.3.0
	go.uber.org/ratelimit v0.3.1
	golang.org/x/sync v0.25.0
	golang.org/x/time v0.16.0
)

require (
	github.com/benbjohnson/clock v1.3.0 // indirect
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/gammazero/deque v1.2.2 // indirect
	github.com/go-analyze/bulk v0.1.6 // indirect
	github.com/golang/freetype v0.0.0-20170609003504-e2365dfdc4a0 // indirect
	go.uber.org/atomic v1.7.0 // indirect
	go.uber.org/multierr v1.9.0 // indirect
	golang.org/x/image v0.45.0 // indirect
)

// The benchmarks measure the library of the same checkout.
replace github.com/penstock-go/penstock => ../
