package redis_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	"github.com/megaframework/mega/internal/suite"
	mutanttest "github.com/megaframework/mega/internal/testkit/mutants"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/limit/limittest"
)

// limitMutants are mutants of the scripts for limits.
var limitMutants = []mutant{
	{name: "grants one unit more", noticed: "W1/a window slides with its grants",
		old: `if rest < 0 then return end`, new: `if rest < -1 then return end`},
	{name: "lets a log expire within its window", noticed: "W1/a window slides with its grants",
		old: `local life = ceil((l.per + l.tick + 2 * refresh) / 1000)`, new: `local life = 50`},
	{name: "records large rates too early", noticed: "W2/a large rate is never exceeded",
		old: `ceil(now / `, new: `ceil((now - 1e5) / `},
	{name: "consumes at a refusal", noticed: "W3/a refusal consumes nothing",
		old: "local wait = at - now\n", new: "local wait = at - now\n" +
			"if wait > 0 then call('zadd', logs[2].key, int(logs[2].total + cost), int(now)) end\n"},
	{name: "consumes a unit at a look", noticed: "W4/a cost of 0 consumes nothing",
		old: "if cost > 0 and waiting == 0 and wait == 0 then\n  if rank then call('zrem', Q, ticket) end\n  grow(cost,",
		new: "if waiting == 0 and wait == 0 then\n  grow(max(cost, 1),"},
	{name: "grants tickets in any order", noticed: "W5/tickets are served in their order",
		old: `local count = rank or`, new: `local count = ticket ~= '' and 0 or`},
	{name: "lets Allow overtake tickets", noticed: "W5/a ticket is not overtaken",
		old: `if call('exists', Q) == 1 then`, new: `if ticket ~= '' and call('exists', Q) == 1 then`},
	{name: "queues what is too late", noticed: "W6/what is known to be too late is refused at once",
		old: `patience >= 0 and wait > patience`, new: `patience > 1e15`},
	{name: "returns no units", noticed: "W7/returned units can be had at once, and once",
		old: `int(e[i + 1] - units)`, new: `int(e[i + 1])`},
	{name: "returns units of a past window", noticed: "W7/returned units belong to their own window",
		old: `local rank = search(l, 0, at)`, new: `local rank = search(l, l.first, at); at = now`},
	{name: "returns units of a forgotten grant from a later one", clock: true,
		noticed: "W7/after a step back, units of a grant that is forgotten are not returned to a later one",
		old:     ` or time > at + l.tick then return end`, new: ` then return end`},
	{name: "returns nothing of a grant whose entry is a tick later", clock: true,
		noticed: "W7/after a step back, returned units belong to their own grant",
		old:     `time > at + l.tick`, new: `time > ceil(at / l.tick) * l.tick`},
	{name: "forgets debts", noticed: "W7/a debt delays later grants",
		old: `grow(-units)`, new: `grow(0)`},
	{name: "keeps dead tickets for long", noticed: "W7/dead tickets cost two seconds together",
		old: `now + again + grace)`, new: `now + again + 20 * grace)`},
	{name: "keeps the first N", noticed: "W8/another N counts from the next call on",
		old: `if l.n == 0 then l.n = l.known end`, new: `l.n = l.known`},
	{name: "grants a repeated request again", noticed: "W9/the same request has one grant",
		old: `if kind ~= 'w' and seq == had then`, new: `if kind ~= 'w' and seq == had and at == '0' then`},
	{name: "grants a late copy", noticed: "W9/the same request has one grant",
		old: `if seq < had then return {0} end`, new: ``},
	{name: "grants a withdrawn request", noticed: "W9/a withdrawn request is refused later",
		old: `if at == '0' then return {0} end -- it was withdrawn`, new: `if at == '0' then at = int(now) end`},
	{name: "waits for a clock that has stepped back", noticed: "W10/a step back delays by at most the window",
		old: `if stepped then now, lead`, new: `if false then now, lead`, clock: true},
	{name: "ignores a pause", noticed: "W13/a pause refuses every process until its end",
		old: `if now + pause > at then`, new: `if pause < 0 then`},
	{name: "lets the last pause win", noticed: "W13/the longest pause wins and Reset lifts it",
		old: `if left > paused() then`, new: `if true then`},
	{name: "keeps the pause at a reset", noticed: "W13/the longest pause wins and Reset lifts it",
		old: `if field ~= 'head' then`, new: `if field ~= 'head' and field ~= 'pause' then`},
	{name: "does not show the spacing", noticed: "W14/the next free unit of a smooth limit is spaced",
		old: `if l.n > 0 and l.last and not l.plain then free`, new: `if false then free`},
	{name: "shows the spacing of an earlier grant", noticed: "W14/the next free unit of a smooth limit is spaced",
		old: `l.last = nil -- the log has it`, new: ``},
	{name: "shows the spacing of a debt", noticed: "W14/the next free unit of a smooth limit is spaced",
		old: `l.plain and ' plain' or ''`, new: `''`},
	{name: "shows no waiters", noticed: "W14/the state shows rates, waiters and pause",
		old: `if record and tonumber(due[j] or 0) > now then`, new: `if record and tonumber(due[j] or 0) < now then`},
}

// A third of the mutants have a turn at a scale of 1, from a random one on.
func TestMutatedScriptsOfLimitsAreCaught(t *testing.T) {
	first, turns := rand.IntN(len(limitMutants)), suite.Scaled(len(limitMutants)/3)
	for _, m := range slices.Concat(limitMutants[first:], limitMutants[:first])[:min(turns, len(limitMutants))] {
		if m.clock && !redistest.CanStepClock() {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t, redis.EngineQueue)
			changed := false
			y.edit = func(source string) string {
				changed = changed || strings.Contains(source, m.old)
				return strings.ReplaceAll(source, m.old, m.new)
			}
			mutanttest.Expect(t, m.noticed, func() error {
				// Some mutants let a case wait for an hour.
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				return limittest.Check(ctx, y.limits(), m.noticed)
			})
			if !changed {
				t.Errorf("no script contains %q", m.old)
			}
		})
	}
}
