module github.com/penstock-go/penstock

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	go.uber.org/goleak v1.3.0
	golang.org/x/time v0.16.0
	pgregory.net/rapid v1.3.0
)
