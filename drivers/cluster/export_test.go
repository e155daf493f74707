package cluster

// len is how many interests the hub knows of.
func (h *hubBus) len() (n int) {
	for _, t := range h.tables {
		n += t.Len()
	}
	return n
}
