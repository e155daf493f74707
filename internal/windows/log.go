package windows

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/megaframework/mega/limit/driver"
)

// log is the record of the grants of one key for one Per. Its entries are in
// the order of their times, and sum counts the units granted since the log
// began, the entry's included. The units in a window are then a difference of
// two sums, and the time at which n more units fit is found by one search.
//
//	N = 5, Per = 800 ms, now = 900 ms
//
//	time   sum
//	 300     2   ┐
//	 450     3   ├ total − base = 5 units in (100, 900]
//	 880     5   ┘
//
// Two units more need sum ≥ total + 2 − N = 2 to leave the window: they can be
// granted at 300 + 800 ms. Times are microseconds.
type log struct {
	per     int64
	n       int64 // of the last grant, for Inspect
	marks   []mark
	first   int   // index of the first mark in the window; those before it are forgotten
	base    int64 // sum before the first mark
	gone    int64 // time of the last forgotten mark; grants until then have left the window
	total   int64 // sum of the last mark, or base
	last    int64 // time of the last grant
	granted int64 // its units
	smooth  bool  // it was spaced, for Inspect
	// returned are the units that marks in the window have given back, by the
	// time of the mark, for copies of the log (record.go).
	returned []MarkRecord
}

type mark struct{ at, sum int64 }

// compactFrom is the number of forgotten marks from which a log moves the
// others to the front.
const compactFrom = 64

// maxReturned is the number of times of which a log remembers the returned units.
const maxReturned = 4 * driver.Exact

// farthest bounds a wait, in microseconds, so that twice as much is a Duration. The
// scripts of the redis driver have the same bound.
const farthest = 4e15

// trim forgets the marks that have left the window.
func (l *log) trim(now int64) {
	for l.first < len(l.marks) && l.marks[l.first].at+l.per <= now {
		l.base, l.gone = l.marks[l.first].sum, l.marks[l.first].at
		l.first++
	}
	for len(l.returned) > 0 && l.returned[0].At+l.per <= now {
		l.returned = l.returned[1:]
	}
	switch {
	case l.first == len(l.marks):
		l.marks, l.first = l.marks[:0], 0
	case l.first >= compactFrom && 2*l.first >= len(l.marks):
		l.marks = slices.Delete(l.marks, 0, l.first)
		l.first = 0
	}
}

// used returns the units in the window of a trimmed log.
func (l *log) used() int64 { return l.total - l.base }

// end returns the time at which the log is empty.
func (l *log) end() int64 {
	if l.first == len(l.marks) {
		return 0
	}
	return l.marks[len(l.marks)-1].at + l.per
}

// earliest returns the time at which the last of units can be granted to
// callers with the limit n, which may differ from the limit of earlier grants (W8).
// It is exact for units <= n, and otherwise an estimate: units that do not fit into
// one window wait for further ones. The log is trimmed.
func (l *log) earliest(units, n, now int64) int64 {
	sum, later := l.total+units-n, int64(0) // sum has to leave the window
	if sum > l.total {
		windows := (sum - l.total + n - 1) / n
		sum -= windows * n
		later = min(windows, farthest/l.per) * l.per
	}
	if sum <= l.base { // W1
		return now + later
	}
	return l.marks[l.find(func(m mark) bool { return m.sum >= sum })].at + l.per + later
}

// spaced returns the time at which a smooth request may be granted, with ahead
// units before it. The last grant, which may have had more than n units, delays it
// by one window at most (W8).
func (l *log) spaced(ahead, n, now int64) int64 {
	spacing := func(units int64) int64 {
		return int64(min(math.Ceil(float64(units)*float64(l.per)/float64(n)), farthest))
	}
	return max(l.last+min(spacing(l.granted), l.per), now) + spacing(ahead)
}

// find returns the index of the first mark in the window for which holds is
// true, or the number of marks.
func (l *log) find(holds func(mark) bool) int {
	return l.first + sort.Search(len(l.marks)-l.first, func(i int) bool { return holds(l.marks[l.first+i]) })
}

// add records units at now, as callers with the limit n count them.
func (l *log) add(units, n, now int64) {
	at := l.stamp(n, now)
	l.total += units
	if last := len(l.marks) - 1; last >= l.first && l.marks[last].at >= at { // the times of a log never decrease
		l.marks[last].sum = l.total
		return
	}
	l.marks = append(l.marks, mark{at, l.total})
}

// stamp returns the time of an entry. It is now rounded up to a tick where there
// may be more grants than entries (W2), as also after many debts: more entries
// than 2 × Exact are never needed for grants alone.
func (l *log) stamp(n, now int64) int64 {
	if n <= driver.Exact && len(l.marks)-l.first < 2*driver.Exact {
		return now
	}
	return l.rounded(now)
}

// tick returns the unit of rounded times.
func (l *log) tick() int64 { return max(l.per/driver.Exact, 1) }

// rounded returns the first tick that is not before at.
func (l *log) rounded(at int64) int64 {
	tick := l.tick()
	return (at + tick - 1) / tick * tick
}

// refund takes units of the grant at the time at, to a caller with the limit n, out
// of the log. The entry of a grant is the first one that is not before it, at most a
// tick later, because times are only rounded up, and an entry may serve a grant that is
// up to a tick before it. A later entry is of another grant, after a step back of the
// clock while nothing of the key was known. A grant whose entry has left the window has
// nothing to return. A log that was restored may not have known that entry.
func (l *log) refund(units, n, at, now int64) {
	own := at
	if n > driver.Exact {
		own = l.rounded(at)
	}
	if own+l.per <= now {
		return
	}
	i := l.find(func(m mark) bool { return m.at >= at })
	if at <= l.gone || i == len(l.marks) || l.marks[i].at > at+l.tick() {
		return
	}
	before := l.base
	if i > l.first {
		before = l.marks[i-1].sum
	}
	units = min(units, l.marks[i].sum-before)
	for j := i; j < len(l.marks); j++ {
		l.marks[j].sum -= units
	}
	l.total -= units
	l.remember(l.marks[i].at, units)
	if l.marks[i].sum == before {
		l.marks = slices.Delete(l.marks, i, i+1)
	}
	if at == l.last {
		l.granted = max(l.granted-units, 0)
	}
}

// remember records that a mark has given units back. What it forgets, because
// there is too much, a copy of the log counts as used.
func (l *log) remember(at, units int64) {
	i, known := slices.BinarySearchFunc(l.returned, at, func(m MarkRecord, at int64) int { return cmp.Compare(m.At, at) })
	if !known {
		l.returned = slices.Insert(l.returned, i, MarkRecord{At: at})
	}
	l.returned[i].Units += units
	if len(l.returned) > maxReturned {
		l.returned = l.returned[1:]
	}
}
