package boot_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/testkit/output"
	"github.com/megaframework/mega/lock"
)

// asWorker is a worker that keeps locks and messages in its own memory.
func asWorker(id string) (boot.Process, *output.Buffer) {
	return process("MEGA_WORKER_ID="+id, "MEGA_LOCK_DRIVER=memory", "MEGA_BUS_DRIVER=memory", "MEGA_LOG_FORMAT=json")
}

func TestWorkerIsNamedAsHolderAndInEachRecordOfItsLog(t *testing.T) {
	p, stderr := asWorker("2")
	r := start(t, p, mega.App("main", mega.Routes(func(r megactx.Router) {
		r.Get("/", func(c *megactx.Ctx) error {
			return c.Lock.With("order:1", func(c *megactx.Ctx) error {
				state, err := c.Lock.Inspect("order:1")
				if err != nil {
					return err
				}
				c.Log.Info("holding")
				return c.JSON(200, state)
			})
		})
	})))
	var state lock.State
	decode(t, r.Report().Apps[0].URL+"/", &state)
	if len(state.Holders) != 1 || state.Holders[0].Worker != 2 || state.Holders[0].App != "main" {
		t.Errorf("the state is %+v", state)
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(stderr.String()) {
		var record struct {
			Msg    string
			Worker int
		}
		if err := json.Unmarshal([]byte(line), &record); err != nil || record.Worker != 2 {
			t.Errorf("worker is %d, %v: %s", record.Worker, err, line)
		}
		seen[record.Msg] = true
	}
	if !seen["holding"] || !seen["request"] {
		t.Errorf("logged:\n%s", stderr)
	}
}

func TestProcessThatIsNoWorkerDoesNotSayThatItIsOne(t *testing.T) {
	p, stderr := process("MEGA_LOG_FORMAT=json")
	if err := start(t, p, mega.App("main", mega.Routes(hello))).Stop(); err != nil {
		t.Error(err)
	}
	if strings.Contains(stderr.String(), `"worker"`) {
		t.Errorf("logged:\n%s", stderr)
	}
}
