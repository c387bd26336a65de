package buffering_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/penstock-go/penstock/buffering"
)

// A queue in front of a worker: urgent items go first, and what was accepted is done before the end.
func ExampleQueue() {
	queue := buffering.NewQueue[string](8)
	for _, job := range []struct {
		name     string
		priority int
	}{{"report", 0}, {"backup", 5}, {"alarm", -1}, {"digest", 0}} {
		if _, err := queue.Push(context.Background(), job.name, job.priority); err != nil {
			fmt.Println(err)
		}
	}
	queue.Close(nil)

	_, err := queue.Push(context.Background(), "too late", 0)
	fmt.Println(err)
	for queue.Take(1, 1, func(job *string, number int) { fmt.Println(*job, "was number", number) }) > 0 {
	}
	// Output:
	// buffering: the queue is closed
	// alarm was number 2
	// report was number 0
	// digest was number 3
	// backup was number 1
}

// With Recruit a queue starts its takers itself, and only as many as there is work for.
func ExampleQueue_Recruit() {
	queue := buffering.NewQueue[int](2)
	var takers sync.WaitGroup
	started := 0
	queue.Recruit(1000, func(first *int, _ int) { // with the queue locked, so there is only time to
		started++          // make a note,
		job := *first      // copy the item
		takers.Go(func() { // and start the worker
			for ok := true; ok; {
				_ = job // the work
				ok = queue.Take(1, 1000, func(next *int, _ int) { job = *next }) > 0
			}
		})
	})
	for i := range 3 {
		if _, err := queue.Push(context.Background(), i, 0); err != nil {
			fmt.Println(err)
		}
	}
	queue.Close(nil)
	takers.Wait()
	accepted, taken := queue.Counts()
	fmt.Println(accepted, "accepted,", taken, "taken, at most 3 takers:", started <= 3)
	// Output:
	// 3 accepted, 3 taken, at most 3 takers: true
}

// When the run is over, what nobody will work on any more is still accounted for.
func ExampleQueue_Abandon() {
	queue := buffering.NewQueue[string](8)
	for _, item := range []string{"a", "b", "c"} {
		if _, err := queue.Push(context.Background(), item, 0); err != nil {
			fmt.Println(err)
		}
	}
	queue.Take(1, 1, func(item *string, _ int) { fmt.Println("taken", *item) })
	queue.Abandon(context.Canceled, func(item *string, _ int) { fmt.Println("left", *item) })
	_, err := queue.Push(context.Background(), "d", 0)
	fmt.Println(err)
	// Output:
	// taken a
	// left b
	// left c
	// context canceled
}

// Two workers fill a small buffer, and the reader takes all that is there each time.
func ExampleResults() {
	results := buffering.NewResults[int](4)
	var workers sync.WaitGroup
	for worker := range 2 {
		workers.Go(func() {
			for i := range 50 {
				square := (2*i + worker) * (2*i + worker)
				results.Put([]*int{&square}) // waits when the reader is slow
			}
		})
	}
	go func() {
		workers.Wait()
		results.Close()
	}()

	count, sum := 0, 0
	var batch []int
	for {
		if batch = results.TakeAll(batch); batch == nil {
			break
		}
		for _, square := range batch {
			count++
			sum += square
		}
		clear(batch) // it is used again
	}
	fmt.Println(count, "squares, in sum", sum)
	// Output:
	// 100 squares, in sum 328350
}

// Results of four items come as they may and leave in order.
func ExampleWindow() {
	window := buffering.NewWindow[string](4)
	fmt.Println(window.Enter(10), "may be open at a time")
	for _, number := range []int{1, 3, 0} {
		result := fmt.Sprint("result ", number)
		window.Put(number, &result)
	}
	window.Shut()  // no more items
	window.Close() // and no more results: number 2 was lost

	for batch := window.TakeReady(nil); batch != nil; batch = window.TakeReady(batch) {
		for _, result := range batch {
			fmt.Println(result)
		}
		window.Release(len(batch)) // room for as many more
	}
	// Output:
	// 4 may be open at a time
	// result 0
	// result 1
}

func ExampleFIFO() {
	var queue buffering.FIFO[string]
	queue.Push("first")
	queue.Push("second")
	fmt.Println("next:", *queue.Peek())
	for queue.Len() > 0 {
		fmt.Println(queue.Pop())
	}
	// Output:
	// next: first
	// first
	// second
}

func ExampleHeap() {
	var heap buffering.Heap[string]
	heap.Push("mail", 2)
	heap.Push("call", 1)
	heap.Push("letter", 2)
	heap.Push("visit", 1)
	for heap.Len() > 0 {
		fmt.Println(heap.Pop())
	}
	// Output:
	// call
	// visit
	// mail
	// letter
}

func ExampleBound() {
	const workers = 8
	fmt.Println("default buffers:", buffering.Bound(workers, workers, workers))
	fmt.Println("small buffers:", buffering.Bound(1, 1, workers))
	// Output:
	// default buffers: 35
	// small buffers: 14
}
