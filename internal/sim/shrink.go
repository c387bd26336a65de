package sim

// Shrink drops the parts of a failing scenario that it fails without. fails says whether a scenario fails, and must try
// it several times, since a seed does not decide what the scheduler does.
func Shrink(s *Scenario, fails func(*Scenario) bool) *Scenario {
	for again := true; again; {
		again = false
		for _, part := range s.Parts() {
			smaller := Draw(s.Seed, s.Clock, append(s.Dropped[:len(s.Dropped):len(s.Dropped)], part)...)
			if fails(smaller) {
				s, again = smaller, true
			}
		}
	}
	return s
}
