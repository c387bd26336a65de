package penstock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-go/penstock"
)

func square(_ context.Context, n int) (int, error) { return n * n, nil }

// A stream of any length in bounded memory. Leaving the loop, in whatever way, ends everything.
func ExampleEngine_IterResults() {
	engine, err := penstock.New(square, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	numbers := func(yield func(int) bool) { // without end
		defer fmt.Println("the source is closed")
		for n := 1; yield(n); n++ {
		}
	}
	for task, err := range engine.IterResults(context.Background(), penstock.FromSeq(numbers)) {
		if err != nil {
			fmt.Println("the run failed:", err)
			return
		}
		if task.Result > 10 {
			break
		}
		fmt.Println(task.Data, task.Result)
	}
	fmt.Println("nothing runs any more")
	// Output:
	// 1 1
	// 2 4
	// 3 9
	// the source is closed
	// nothing runs any more
}

// The results in input order, with a bounded number of items under way.
func ExampleEngine_IterOrdered() {
	engine, err := penstock.New(square, 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	for task, err := range engine.IterOrdered(context.Background(), penstock.FromSlice([]int{3, 1, 2})) {
		fmt.Println(task.Index, task.Data, task.Result, err)
	}
	// Output:
	// 0 3 9 <nil>
	// 1 1 1 <nil>
	// 2 2 4 <nil>
}

// printAll works through a source and prints the results in input order, and the run's error.
func printAll[T any](src penstock.Source[T]) {
	engine, err := penstock.New(func(_ context.Context, item T) (string, error) { return fmt.Sprint("<", item, ">"), nil }, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	for task, err := range engine.IterOrdered(context.Background(), src) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(task.Result)
	}
}

func ExampleSource() {
	printAll(penstock.Source[int]{}) // no items
	printAll(penstock.FromSlice([]int{1}))
	printAll(penstock.FromSeq(slices.Values([]int{2})))
	// Output:
	// <1>
	// <2>
}

func ExampleFromSlice() {
	printAll(penstock.FromSlice([]string{"a", "b"}))
	// Output:
	// <a>
	// <b>
}

func ExampleFromSeq() {
	printAll(penstock.FromSeq(strings.FieldsSeq("to be or not")))
	// Output:
	// <to>
	// <be>
	// <or>
	// <not>
}

// The lines of a file, with its error if reading fails.
func ExampleFromSeq2() {
	scanner := bufio.NewScanner(strings.NewReader("first line\nsecond line\n"))
	lines := func(yield func(string, error) bool) {
		for scanner.Scan() {
			if !yield(scanner.Text(), nil) {
				return
			}
		}
		if err := scanner.Err(); err != nil {
			yield("", err)
		}
	}
	printAll(penstock.FromSeq2(lines))
	// Output:
	// <first line>
	// <second line>
}

func ExampleFromChan() {
	ch := make(chan int)
	go func() {
		defer close(ch)
		for n := range 3 {
			ch <- n
		}
	}()
	printAll(penstock.FromChan(ch))
	// Output:
	// <0>
	// <1>
	// <2>
}

// Page after page of a listing. The context ends when the run does, so a request that hangs holds nothing up.
func ExampleFromFunc() {
	fetchPage := func(_ context.Context, page int) ([]string, error) {
		if page == 2 {
			return nil, nil
		}
		return []string{fmt.Sprintf("item %d.0", page), fmt.Sprintf("item %d.1", page)}, nil
	}
	printAll(penstock.FromFunc(func(ctx context.Context, yield func(string) bool) error {
		for page := 0; ; page++ {
			items, err := fetchPage(ctx, page)
			if err != nil || len(items) == 0 {
				return err
			}
			for _, item := range items {
				if !yield(item) {
					return nil
				}
			}
		}
	}))
	// Output:
	// <item 0.0>
	// <item 0.1>
	// <item 1.0>
	// <item 1.1>
}

// A source that fails ends the run, after what was there before.
func ExampleSourceError() {
	engine, err := penstock.New(square, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	errTorn := errors.New("the file is torn")
	_, err = engine.ProcessSource(context.Background(), penstock.FromFunc(func(_ context.Context, yield func(int) bool) error {
		yield(1)
		return errTorn
	}))
	var failed *penstock.SourceError
	fmt.Println(errors.As(err, &failed), errors.Is(err, errTorn))
	fmt.Println(err)
	// Output:
	// true true
	// penstock: the source failed: the file is torn
}
