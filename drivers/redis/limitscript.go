package redis

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/megaframework/mega/limit/driver"
)

// limitFormat is the version of the data of limits. L24
const limitFormat = "1"

const (
	// limitRefresh is how often a log in use, and the state with it, gets a
	// new TTL.
	limitRefresh = 2 * time.Second
	// limitKeeping is the TTL of the queue, the tickets and the state after
	// their last use. It is longer than driver.TicketMemory.
	limitKeeping = 15 * time.Second
)

var (
	//go:embed limit.lua
	limitLua string
	//go:embed limit_change.lua
	limitChangeLua string
	//go:embed limit_plain.lua
	limitPlainLua string
	//go:embed limit_take.lua
	limitTakeLua string
	//go:embed limit_withdraw.lua
	limitWithdrawLua string
	//go:embed limit_settle.lua
	limitSettleLua string
	//go:embed limit_pause.lua
	limitPauseLua string
	//go:embed limit_reset.lua
	limitResetLua string
	//go:embed limit_inspect.lua
	limitInspectLua string
)

// limitScripts are the operations on limits. Each call names all its keys.
type limitScripts struct{ take, withdraw, settle, pause, reset, inspect *script }

func newLimitScripts(edit func(source string) string) *limitScripts {
	head := fmt.Sprintf("local exact, room, refresh, keeping, grace, memory, barring = %d, %d, %d, %d, %d, %d, %d\n",
		driver.Exact, driver.MaxTickets, limitRefresh.Microseconds(), limitKeeping.Milliseconds(),
		driver.TicketGrace.Microseconds(), driver.TicketMemory.Microseconds(), barring.Microseconds())
	of := func(name string, parts ...string) *script {
		source := head + strings.Join(parts, "")
		if edit != nil {
			source = edit(source)
		}
		return newScript(name, source, nil)
	}
	return &limitScripts{
		take:     of("take", limitPlainLua, limitLua, limitChangeLua, limitTakeLua),
		withdraw: of("withdraw", limitLua, limitChangeLua, limitWithdrawLua),
		settle:   of("settle", limitLua, limitChangeLua, limitSettleLua),
		pause:    of("pause", limitLua, limitChangeLua, limitPauseLua),
		reset:    of("reset", limitLua, limitChangeLua, limitResetLua),
		inspect:  of("inspect", limitLua, limitInspectLua),
	}
}

// all returns every script.
func (s *limitScripts) all() []*script {
	return []*script{s.take, s.withdraw, s.settle, s.pause, s.reset, s.inspect}
}

// The keys of a limit, in the order in which scripts get them; the log of each
// rate follows, whose name ends with its Per in microseconds.
const (
	rateSuffix  = "rate"
	perLimit    = 4
	rateTickets = ":tickets"
	rateQueue   = ":queue"
	rateDue     = ":due"
)

// limitKeys returns the names in Redis of the limit key, which begin with the name
// of its state.
func (t template) limitKeys(key string, rates []driver.Rate) []string {
	state := t.holder(key) + t.separator() + rateSuffix
	keys := make([]string, perLimit, perLimit+len(rates))
	keys[0], keys[1], keys[2], keys[3] = state, state+rateTickets, state+rateQueue, state+rateDue
	for _, r := range rates {
		keys = append(keys, state+":"+strconv.FormatInt(r.Per.Microseconds(), 10))
	}
	return keys
}

// limitKey returns the key of the limit whose state has this name in Redis.
func (t template) limitKey(name string) (string, bool) {
	holder, ok := strings.CutSuffix(name, t.separator()+rateSuffix)
	if !ok {
		return "", false
	}
	key, ok := t.key(holder)
	return key, ok && t.holder(key) == holder
}

// limitMatch is a glob for SCAN that finds the states of every key that begins
// with prefix, and perhaps others.
func (t template) limitMatch(prefix string) string {
	return t.match(prefix) + globEncoder.Replace(t.after+t.separator()+rateSuffix)
}

// onLimit returns a request of a script on the limit key with these rates.
func (l *limits) onLimit(s *script, key string, rates []driver.Rate, argv ...string) request {
	args := make([]string, 0, 2*len(rates)+len(argv))
	for _, r := range rates {
		args = append(args, digits(r.N), digits(r.Per.Microseconds()))
	}
	return s.over(l.template.limitKeys(key, rates), append(args, argv...)...)
}
