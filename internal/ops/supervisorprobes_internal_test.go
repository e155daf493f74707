package ops

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReadinessOfWorkersIsThatOfTheBestOfThem(t *testing.T) {
	fine := workerAnswer{name: "worker 1", readiness: Readiness{Status: "ok", Degraded: []string{"locks end at this node"}, Checks: []Result{{Name: "bus", Status: "ok", Took: "2µs"}}}}
	full := workerAnswer{name: "worker 2", readiness: Readiness{
		Status: "not ready", Reasons: map[string]string{"disk": "full"}, Degraded: []string{"locks end at this node"},
		Checks: []Result{{Name: "disk", Status: "failed", Took: "1ms", Error: "full"}},
	}}
	silent := workerAnswer{name: "worker 3", took: time.Second, err: errors.New("it has not answered for 1s")}
	leaving := workerAnswer{name: "worker 4", readiness: Readiness{Status: "stopping"}}
	checks := func(all ...workerAnswer) (found []Result) {
		for _, i := range all {
			found = append(found, i.checks()...)
		}
		return found
	}
	for _, x := range []struct {
		name string
		all  []workerAnswer
		want Readiness
	}{
		{"one that is ready", []workerAnswer{fine}, Readiness{Status: "ok", Degraded: []string{"locks end at this node"}}},
		{"one of several", []workerAnswer{full, fine, silent, leaving}, Readiness{Status: "ok", Degraded: []string{
			"locks end at this node", "worker 2: disk: full", "worker 3: it has not answered for 1s", "worker 4: stopping",
		}}},
		{"none", []workerAnswer{full, silent}, Readiness{
			Status: "not ready", Degraded: []string{"locks end at this node"},
			Reasons: map[string]string{"worker 2: disk": "full", "worker 3": "it has not answered for 1s"},
		}},
		{"one that is leaving", []workerAnswer{leaving}, Readiness{Status: "not ready", Reasons: map[string]string{"worker 4": "stopping"}}},
	} {
		t.Run(x.name, func(t *testing.T) {
			x.want.Checks = checks(x.all...)
			if diff := cmp.Diff(x.want, combined(x.all)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	if got := full.checks()[0].Name; got != "worker 2: disk" {
		t.Errorf("a check is called %q", got)
	}
}
