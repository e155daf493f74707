package memory

// Size returns how many entries, tokens that must not come back, and armed
// timers there are.
func (l *Lock) Size() (entries, gone, timers int) { return l.table.Size() }

// Size returns how many nodes there are below the roots of the tries.
func (b *Bus) Size() int { return b.events.Len() + b.requests.Len() }
