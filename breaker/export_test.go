package breaker

// Changes is how often the state has changed.
func (b *Breaker) Changes() int { return int(b.current()>>2 - firstEpoch>>2) }
