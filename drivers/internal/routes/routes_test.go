package routes_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/megaframework/mega/drivers/internal/routes"
)

// plan is what a subject was found to have, sorted.
type plan struct{ each, groups []string }

func newTable() *routes.Table[string, plan] {
	return routes.New(func(_ string, each []string, groups [][]string) plan {
		p := plan{each: slices.Sorted(slices.Values(each))}
		for _, g := range groups {
			p.groups = append(p.groups, fmt.Sprint(g))
		}
		slices.Sort(p.groups)
		return p
	})
}

func TestSubjectsFindWhatMatches(t *testing.T) {
	table := newTable()
	for _, x := range []struct{ pattern, group string }{
		{"a.b", ""}, {"a.*", ""}, {"*.b", ""}, {"a.>", ""}, {">", ""}, {"*", ""}, {"a.b.c", ""},
		{"a.*", "g"}, {"a.*", "h"}, {"a.>", "g"},
	} {
		table.Add(x.pattern, x.group, x.group+" "+x.pattern)
		if x.group != "" {
			table.Add(x.pattern, x.group, "2nd")
		}
	}
	for subject, want := range map[string]plan{
		"a":       {each: []string{" *", " >"}},
		"b":       {each: []string{" *", " >"}},
		"c.b":     {each: []string{" *.b", " >"}},
		"a.b":     {each: []string{" *.b", " >", " a.*", " a.>", " a.b"}, groups: []string{"[g a.* 2nd]", "[g a.> 2nd]", "[h a.* 2nd]"}},
		"a.b.c":   {each: []string{" >", " a.>", " a.b.c"}, groups: []string{"[g a.> 2nd]"}},
		"A.B.c.d": {each: []string{" >"}},
	} {
		for range 2 { // looked for, and remembered
			if got := fmt.Sprint(*table.Find(subject)); got != fmt.Sprint(want) {
				t.Errorf("%s finds %s, want %v", subject, got, want)
			}
			if got := fmt.Sprint(*table.FindBytes([]byte(subject))); got != fmt.Sprint(want) {
				t.Errorf("%s as bytes finds %s, want %v", subject, got, want)
			}
		}
	}
}

func TestAPlanStandsUntilTheTableChanges(t *testing.T) {
	table := newTable()
	table.Add("a", "", "1")
	first := table.Find("a")
	if again := table.FindBytes([]byte("a")); again != first {
		t.Error("nothing has changed, and there is another plan")
	}
	if table.Remove("a", "", "2") || table.Remove("b", "", "1") || table.Remove("a", "g", "1") {
		t.Error("what was never there was removed")
	}
	if again := table.Find("a"); again != first {
		t.Error("nothing was removed, and there is another plan")
	}
	if !table.Remove("a", "", "1") || len(table.Find("a").each) != 0 || table.Len() != 0 {
		t.Errorf("after it was removed: %v, %d places", table.Find("a"), table.Len())
	}
	if len(first.each) != 1 {
		t.Error("a plan that somebody has was changed")
	}
}

// Whoever asks after a change is told of it, however many ask meanwhile.
func TestAChangeIsSeenAtOnce(t *testing.T) {
	table := newTable()
	stop := make(chan struct{})
	var asking sync.WaitGroup
	for range 2 {
		asking.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					table.Find(fmt.Sprint("a.", i%3))
				}
			}
		})
	}
	for i := range 2000 {
		v := fmt.Sprint(i)
		table.Add("a.*", "", v)
		if got := table.Find("a.1").each; !slices.Equal(got, []string{v}) {
			t.Fatalf("after %s was added: %v", v, got)
		}
		table.Remove("a.*", "", v)
		if got := table.Find("a.1").each; len(got) != 0 {
			t.Fatalf("after %s was removed: %v", v, got)
		}
	}
	close(stop)
	asking.Wait()
}

func BenchmarkFind(b *testing.B) {
	table := newTable()
	table.Add("orders.*.created", "", "1")
	b.ReportAllocs()
	for b.Loop() {
		table.Find("orders.eu.created")
	}
}

// Each value is found as long as it is registered, whatever else was at its pattern.
func TestARemovalLeavesTheOtherValuesOfItsPattern(t *testing.T) {
	table := routes.New(func(_ string, each []int, groups [][]int) string { return fmt.Sprint(each, groups) })
	table.Add("a.b", "", 1)
	table.Add("a.b", "", 2)
	table.Add("a.b", "g", 3)
	table.Add("a.b", "g", 4)
	for _, step := range []struct {
		group string
		v     int
		want  string
	}{{"", 1, "[2] [[3 4]]"}, {"g", 3, "[2] [[4]]"}, {"g", 4, "[2] []"}, {"", 2, "[] []"}} {
		if !table.Remove("a.b", step.group, step.v) {
			t.Errorf("%d was not there", step.v)
		}
		if got := *table.Find("a.b"); got != step.want {
			t.Errorf("without %d: %s, want %s", step.v, got, step.want)
		}
	}
	if n := table.Len(); n != 0 {
		t.Errorf("%d nodes are left", n)
	}
}

func TestAClearedTableFindsNothing(t *testing.T) {
	table := routes.New(func(_ string, each []int, _ [][]int) int { return len(each) })
	table.Add("a", "", 1)
	if *table.Find("a") != 1 {
		t.Fatal("not found")
	}
	table.Clear()
	if n := *table.Find("a"); n != 0 || table.Len() != 0 {
		t.Errorf("found %d in %d nodes", n, table.Len())
	}
}

// Subjects share places in the cache.
func TestEachSubjectFindsItsOwnPlan(t *testing.T) {
	table := routes.New(func(subject string, _ []int, _ [][]int) string { return subject })
	for range 2 {
		for i := range 2000 {
			subject := fmt.Sprint("s", i)
			if got := *table.FindBytes([]byte(subject)); got != subject {
				t.Fatalf("FindBytes: %s got the plan of %s", subject, got)
			}
			if got := *table.Find(subject); got != subject {
				t.Fatalf("Find: %s got the plan of %s", subject, got)
			}
		}
	}
}

// A plan keeps its lists, whatever is added or removed after it was made.
func TestAPlanKeepsItsMembers(t *testing.T) {
	table := routes.New(func(_ string, _ []int, groups [][]int) []int { return groups[0] })
	for i := range 10 {
		table.Add("a", "g", i)
		plan := *table.Find("a")
		want := slices.Clone(plan)
		table.Add("a", "g", 100+i)
		table.Remove("a", "g", 100+i)
		table.Add("a", "g", 200+i)
		if !slices.Equal(plan, want) {
			t.Fatalf("the members %v have become %v", want, plan)
		}
	}
}
