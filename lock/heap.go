package lock

// holds is a binary heap by next. Each hold knows its index, so that any of
// them can be moved or removed. It is container/heap without the interface,
// which every acquire and release would pay for four times.
type holds []*hold

// push puts h, whose next is set, at the end; fix must follow.
func (hs *holds) push(h *hold) {
	h.index = len(*hs)
	*hs = append(*hs, h)
}

// remove takes h out.
func (hs *holds) remove(h *hold) {
	i, last := h.index, len(*hs)-1
	hs.swap(i, last)
	(*hs)[last] = nil
	*hs = (*hs)[:last]
	h.index = -1
	if i < last {
		hs.fix((*hs)[i])
	}
}

// fix moves h to where its next belongs.
func (hs *holds) fix(h *hold) {
	hs.up(h.index)
	hs.down(h.index)
}

func (hs *holds) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if (*hs)[parent].next <= (*hs)[i].next {
			return
		}
		hs.swap(i, parent)
		i = parent
	}
}

func (hs *holds) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(*hs) {
			return
		}
		if right := child + 1; right < len(*hs) && (*hs)[right].next < (*hs)[child].next {
			child = right
		}
		if (*hs)[i].next <= (*hs)[child].next {
			return
		}
		hs.swap(i, child)
		i = child
	}
}

func (hs *holds) swap(i, j int) {
	a, b := (*hs)[i], (*hs)[j]
	(*hs)[i], (*hs)[j] = b, a
	a.index, b.index = j, i
}
