package buffering

import "math"

// Bound is the largest number of items that a run holds between the moment its source gives one up and the moment its
// consumer lets it go, for one submitter, with input capacity i, result capacity r and w workers:
//
//	1   the item that the submitter holds while it waits for room in the input queue
//	i   the items in the input queue
//	w   the items with the workers, finished or not
//	2r  the results in the result buffer, and those that the consumer took out of it in one go, the one it is looking at
//	    included: the less it holds, the more may wait
//	2   in reserve, so that the number is also a bound for a design with hand-over in steps
//
// That is i + 2r + w + 3; with the default capacities, both w, it is 4w + 3. Sources that workers take from directly, a
// slice and a channel, do without the first two terms. With a batch of b items per hand-over the workers hold w·b. Each
// further submitter adds the one item that it holds. A consumer that drains everything at once also takes the finished items
// with which workers wait for room, and so holds up to w·b more. An unlimited capacity makes the bound unlimited.
func Bound(i, r, w int) int {
	bound := 3
	for _, part := range []int{i, r, r, w} {
		if part > math.MaxInt-bound {
			return math.MaxInt
		}
		bound += part
	}
	return bound
}
