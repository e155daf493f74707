package ops

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReadinessOfWorkersIsThatOfTheBestOfThem(t *testing.T) {
	fine := inquiry{name: "worker 1", is: Readiness{Status: "ok", Degraded: []string{"locks end at this node"}, Checks: []Result{{Name: "bus", Status: "ok", Took: "2µs"}}}}
	full := inquiry{name: "worker 2", is: Readiness{
		Status: "not ready", Reasons: map[string]string{"disk": "full"}, Degraded: []string{"locks end at this node"},
		Checks: []Result{{Name: "disk", Status: "failed", Took: "1ms", Error: "full"}},
	}}
	silent := inquiry{name: "worker 3", took: time.Second, err: errors.New("it has not answered for 1s")}
	leaving := inquiry{name: "worker 4", is: Readiness{Status: "stopping"}}
	checks := func(all ...inquiry) (found []Result) {
		for _, i := range all {
			found = append(found, i.checks()...)
		}
		return found
	}
	for _, x := range []struct {
		name string
		all  []inquiry
		want Readiness
	}{
		{"one that is ready", []inquiry{fine}, Readiness{Status: "ok", Degraded: []string{"locks end at this node"}}},
		{"one of several", []inquiry{full, fine, silent, leaving}, Readiness{Status: "ok", Degraded: []string{
			"locks end at this node", "worker 2: disk: full", "worker 3: it has not answered for 1s", "worker 4: stopping",
		}}},
		{"none", []inquiry{full, silent}, Readiness{
			Status: "not ready", Degraded: []string{"locks end at this node"},
			Reasons: map[string]string{"worker 2: disk": "full", "worker 3": "it has not answered for 1s"},
		}},
		{"one that is leaving", []inquiry{leaving}, Readiness{Status: "not ready", Reasons: map[string]string{"worker 4": "stopping"}}},
	} {
		t.Run(x.name, func(t *testing.T) {
			x.want.Checks = checks(x.all...)
			if diff := cmp.Diff(x.want, joined(x.all)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	if got := full.checks()[0].Name; got != "worker 2: disk" {
		t.Errorf("a check is called %q", got)
	}
}
