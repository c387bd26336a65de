//go:build race

package sim_test

// raceEnabled says that the race detector is on, which allows some 8,000 goroutines and takes its time.
const raceEnabled = true
