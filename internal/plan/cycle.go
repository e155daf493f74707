package plan

import (
	"reflect"
	"slices"

	"github.com/megaframework/mega/internal/failure"
)

// cycle returns a cycle of constructors, in which each constructor needs a
// value of the next one, and the last needs a value of the first. It returns
// nil if there is no cycle.
func cycle(constructors []Function) []Function {
	s := search{makers: map[reflect.Type]int{}, constructors: constructors, done: make([]bool, len(constructors))}
	for i, f := range constructors {
		for _, t := range f.Makes() {
			s.makers[t] = i
		}
	}
	for i := range constructors {
		if found := s.from(i); found != nil {
			return found
		}
	}
	return nil
}

// search is a depth-first search from each constructor to the constructors of
// its parameters.
type search struct {
	makers       map[reflect.Type]int
	constructors []Function
	done         []bool
	path         []int
}

func (s *search) from(i int) []Function {
	if at := slices.Index(s.path, i); at >= 0 {
		return s.named(s.path[at:])
	}
	if s.done[i] {
		return nil
	}
	s.path = append(s.path, i)
	for _, t := range s.constructors[i].Needs() {
		if maker, ok := s.makers[t]; ok {
			if found := s.from(maker); found != nil {
				return found
			}
		}
	}
	s.path = s.path[:len(s.path)-1]
	s.done[i] = true
	return nil
}

func (s *search) named(path []int) (all []Function) {
	for _, i := range path {
		all = append(all, s.constructors[i])
	}
	return all
}

// acyclic returns a Failure if the constructors form a cycle.
func acyclic(constructors []Function) error {
	round := cycle(constructors)
	if round == nil {
		return nil
	}
	f := &failure.Failure{
		Code: "boot.circle", Exit: failure.ExitInternal, Text: "Constructors need each other, so that none can be the first.",
		Actions: []string{"Move what both need into a value of its own", "Let one get the other later: mega.OnStart(…)"},
	}
	for _, c := range round {
		f.Facts = append(f.Facts, failure.Fact{Name: "needs the next", Value: c.Declared()})
	}
	f.Facts[len(f.Facts)-1].Name = "needs the first"
	return f
}
