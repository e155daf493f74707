package settings

import "testing"

// A file system of the network may take long to answer.
func TestRecordingDoesNotReadUnderItsMutex(t *testing.T) {
	f := new(Files)
	had := func(s *pathState) bool { return s.Read != nil }
	got := f.state("a", had, func() func(*pathState) {
		f.state("b", had, func() func(*pathState) { return func(s *pathState) { s.Read = outcome(nil) } })
		return func(s *pathState) { s.Read, s.Data = outcome(nil), []byte("x") }
	})
	if string(got.Data) != "x" || len(f.kept.Paths) != 2 {
		t.Errorf("recorded %+v", f.kept.Paths)
	}
}

func TestRecordKeepsTheFirstOfTwoReads(t *testing.T) {
	f := new(Files)
	had := func(s *pathState) bool { return s.Read != nil }
	read := func(text string, beside func()) func() func(*pathState) {
		return func() func(*pathState) {
			beside()
			return func(s *pathState) { s.Read, s.Data = outcome(nil), []byte(text) }
		}
	}
	got := f.state("a", had, read("late", func() { f.state("a", had, read("first", func() {})) }))
	if string(got.Data) != "first" {
		t.Errorf("got %q", got.Data)
	}
	if f.state("b", had, read("late", f.Keep)); len(f.kept.Paths) != 1 {
		t.Error("a kept copy changed")
	}
}
