package ratelimiter

import "maps"

// A crowd is a map that gives memory back: a map by itself stays as large as it
// has ever been, and those who have to wait can be very many for a short time.
type crowd[K comparable, V any] struct {
	of   map[K]V // nil until the first put
	peak int     // the most there have been in this map
}

// small is how many a crowd may have had without shrinking.
const small = 1024

func (c *crowd[K, V]) put(k K, v V) {
	if c.of == nil {
		c.of = make(map[K]V)
	}
	c.of[k] = v
	c.peak = max(c.peak, len(c.of))
}

// drop removes k. When of many only few are left it moves them to a new map; they
// are so few that nobody has to wait for it.
func (c *crowd[K, V]) drop(k K) {
	delete(c.of, k)
	if n := len(c.of); c.peak > small && n <= small/4 {
		of := make(map[K]V, n)
		maps.Copy(of, c.of)
		c.of, c.peak = of, n
	}
}
