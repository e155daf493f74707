package lock

// holds is a binary heap, ordered by next. Each hold stores its index, so that
// any hold can be moved or removed. It does not use container/heap, because
// each acquire and release would make four calls through its interface.
type holds []*hold

// roomy is the length up to which a heap keeps its room. Above it, a heap that is
// less than a quarter full gives half of its room back, so that a peak does not
// stay in memory.
const roomy = 1024

// push appends h, whose next is set; the caller must then call fix.
func (hs *holds) push(h *hold) {
	h.index = len(*hs)
	*hs = append(*hs, h)
}

// remove removes h from the heap.
func (hs *holds) remove(h *hold) {
	i, last := h.index, len(*hs)-1
	hs.swap(i, last)
	(*hs)[last] = nil
	*hs = (*hs)[:last]
	if last > roomy && last < cap(*hs)/4 {
		*hs = append(make(holds, 0, cap(*hs)/2), *hs...)
	}
	h.index = -1
	if i < last {
		hs.fix((*hs)[i])
	}
}

// fix moves h to its position after a change of its next.
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
