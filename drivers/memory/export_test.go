package memory

// Size returns how many entries, tokens that must not come back, and armed
// timers there are.
func (l *Lock) Size() (entries, gone, timers int) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		entries += len(s.entries)
		gone += len(s.gone.order)
		if !s.sweepAt.IsZero() {
			timers++
		}
		for _, e := range s.entries {
			if !e.timerAt.IsZero() {
				timers++
			}
		}
		s.mu.Unlock()
	}
	return entries, gone, timers
}

// Size returns how many nodes there are below the roots of the tries.
func (b *Bus) Size() int { return b.events.Len() + b.asked.Len() }
