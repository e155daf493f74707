package redis_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/suite"
	mutanttest "github.com/megaframework/mega/internal/testkit/mutants"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock/locktest"
)

// mutant is a change of the scripts that breaks a rule, as somebody might make
// it, and the case that has to notice.
type mutant struct {
	name     string
	noticed  string // rule/claim
	old, new string
	clock    bool // the case sets the clock of the server
}

// mutants are mutants of the scripts for all locks.
var mutants = []mutant{
	{name: "loses one push in 20", noticed: "L9/at most three of two thousand hand-overs wait for a repair",
		old: `local heard = redis.pcall('publish', inbox`, new: `local heard = first % 20 == 0 and 1 or redis.pcall('publish', inbox`},
	{name: "never pushes at a release", noticed: "L9/at most three of two thousand hand-overs wait for a repair",
		old: `local heard = redis.pcall('publish', inbox`, new: `local heard = 1 or redis.pcall('publish', inbox`},
	{name: "keeps no record of fences", noticed: "L2/fences grow while the clock of the backend steps back",
		old: `call('set', M, `, new: `tostring(`, clock: true},
	{name: "lets a pushed grant live for 20 s", noticed: "L8/a silently disconnected waiter delays the next one by one grant window",
		old: `barring, keeping, room = 2000, `, new: `barring, keeping, room = 20000, `},
	{name: "puts a ticket that comes back at the end", noticed: "L7/waiters that the backend has lost return to their places",
		old: `local at = tonumber(number) or`, new: `local at =`},
	{name: "does not keep tickets with a heartbeat", noticed: "L7/waiters keep their places while they wait",
		old: `call('zadd', D, unpack(due))`, new: ``},
	{name: "bars no token that it does not find", noticed: "L6/an old copy of a request that was refused acquires nothing",
		old: `if loose == '1' or not found then bar(`, new: `if loose == '1' and found then bar(`},
	{name: "reports another version as an error that may pass", noticed: "L24/data of another version at one key disturbs no lease and no wait of another key",
		old: `error('MEGAFORMAT ' .. (string.match(data, '^(%d+)') or 'unknown'))`, new: `error({err = 'BUSY ' .. data})`},
	{name: "serves the second one at every 50th release", noticed: "L7/a long queue of processes is served in order",
		old: `local ticket = head[1]`,
		new: `if call('incr', 'released') % 50 == 49 then
      local second = call('zpopmin', Q)
      if second[1] then call('zadd', Q, head[2], head[1]); head = second end
    end
    local ticket = head[1]`},
	{name: "never shortens", noticed: "L12/the driver sets the life of a grant in both directions",
		old: "  rev, had = tonumber(rev), tonumber(had or 0)\n", new: "  rev, had = tonumber(rev), tonumber(had or 0)\n  if slot == 0 and call('pttl', H) > tonumber(ttl) then return true end\n"},
	{name: "takes a late copy for a renewal", noticed: "L12/the driver ignores a late copy of an older renewal",
		old: `if rev < had then return false end`, new: ``},
	{name: "begins a cooldown anew with each copy of its release", noticed: "O5/a late copy of a release does not lengthen its cooldown",
		old: `if not had or tonumber(had) < tonumber(rev) then prolong`, new: `if true then prolong`},
}

// Half of the mutants of pools have a turn at a scale of 1.
func TestMutatedScriptsAreCaught(t *testing.T) {
	all, turns := slices.Concat(mutants, queueMutants), suite.Scaled(len(slotMutants)/2)
	for i, m := range slotMutants {
		if mutanttest.HasTurn(i, len(slotMutants), turns) {
			all = append(all, m)
		}
	}
	for _, m := range all {
		if m.clock && !redistest.CanStepClock() {
			continue // the case does not exist here
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t, redis.EngineQueue)
			changed := false
			y.edit = func(source string) string {
				changed = changed || strings.Contains(source, m.old)
				return strings.ReplaceAll(source, m.old, m.new)
			}
			y.names = redis.ScriptNames(y.edit) // so that faults find the calls
			mutanttest.Expect(t, m.noticed, func() error { return locktest.Check(t.Context(), y.harness(), m.noticed) })
			if !changed {
				t.Errorf("no script contains %q", m.old)
			}
		})
	}
}
