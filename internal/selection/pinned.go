package selection

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/mask"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/settings"
)

// The place of locks, messages and limits does not change while a supervisor runs: a
// worker with another place could hold locks that other workers hold, too.

// Pinned records the selected drivers of a program and their addresses.
type Pinned struct {
	Lock pin `json:"lock"`
	Bus  pin `json:"bus"`

	Limit pin `json:"limit"`
}

// pin records one driver and the values of the keys that place it, without
// passwords. Passwords may change without a change of place.
type pin struct {
	Driver string            `json:"driver"`
	Key    string            `json:"key"` // that decided
	At     map[string]string `json:"at"`
}

// placing returns the keys that place the locks or messages of a driver,
// besides the address of its server.
func placing(d plan.Decision) []string {
	switch d.Chosen {
	case "cluster":
		switch d.Component {
		case "bus":
			return []string{"cluster.socket"}
		case "limit":
			return []string{"cluster.socket", "lock.namespace"}
		}
		return []string{"cluster.socket", "lock.namespace", nameKey}
	case "redis":
		if d.Component == "limit" {
			return []string{"lock.redis.key", "lock.namespace"}
		}
		return []string{"lock.redis.engine", "lock.redis.key", "lock.namespace", nameKey}
	case "nats":
		return []string{
			"nats.user", "nats.nkey_file", "nats.creds_file", // the user determines the account
			"bus.nats.prefix", "bus.nats.event_prefix", "bus.nats.request_prefix", "bus.nats.inbox_prefix",
		}
	}
	return nil
}

// nameKey is the key of the program's name, which is in the locks of Lead, Every
// and OnPrimary.
const nameKey = "name"

// Pins records the selected drivers and their addresses.
func Pins(d plan.Decisions, c *settings.Config) Pinned {
	return Pinned{Lock: pinOf(d.Lock, c), Bus: pinOf(d.Bus, c), Limit: pinOf(d.Limit, c)}
}

func pinOf(d plan.Decision, c *settings.Config) pin {
	p := pin{Driver: d.Chosen, Key: d.Key, At: map[string]string{}}
	for _, key := range placing(d) {
		v, _ := c.Value(key)
		p.At[key] = v.Text
	}
	if d.Server != "" {
		p.At[serverKey] = serverOf(d, c) // the alias may change
	}
	return p
}

// serverOf returns the address of the server without its credentials, which may
// change.
func serverOf(d plan.Decision, c *settings.Config) string {
	if d.Component == "bus" {
		return mask.Place(c.NATS.URL.Reveal())
	}
	return mask.Place(c.Cache[d.Cache].URL.Reveal())
}

// serverKey stands for the key of a server's address.
const serverKey = "server"

// differs returns the key in which a decision differs from the supervisor's, or
// "" if there is none.
func (p pin) differs(d plan.Decision, c *settings.Config) string {
	own := pinOf(d, c)
	if own.Driver != p.Driver {
		if _, ok := c.Value(own.Key); ok {
			return own.Key
		}
		return p.Key // it is no longer set
	}
	for _, key := range slices.Sorted(maps.Keys(own.At)) {
		was, known := p.At[key] // a supervisor of another build may not know the key
		switch {
		case !known || was == own.At[key]:
		case key == serverKey && d.Component == "bus":
			return "nats.url"
		case key == serverKey:
			return "cache." + d.Cache + ".url"
		default:
			return key
		}
	}
	return ""
}

// Stays returns an error if a worker with these decisions would keep its locks
// or limits, or receive its messages, elsewhere than the other workers of its
// supervisor.
func (of Pinned) Stays(d plan.Decisions, c *settings.Config) error {
	for _, x := range []struct {
		is  plan.Decision
		was pin
	}{{d.Lock, of.Lock}, {d.Bus, of.Bus}, {d.Limit, of.Limit}} {
		if x.was.Driver == "" {
			continue // a supervisor of an earlier build does not know limits
		}
		if key := x.was.differs(x.is, c); key != "" {
			return placeChanged(c, x.is, x.was, key)
		}
	}
	return nil
}

// placeChanged returns the failure of a worker whose locks or messages would be in
// another place than those of the other workers.
func placeChanged(c *settings.Config, d plan.Decision, of pin, key string) error {
	text := fmt.Sprintf("The configuration has changed: %s would use another place than the other workers.", d.Subject())
	if d.Chosen != of.Driver {
		text = fmt.Sprintf("The configuration has changed: %s would use the driver %s, but the other workers use %s.", d.Subject(), d.Chosen, of.Driver)
	}
	f := &failure.Failure{
		Code: "cluster.changed", Exit: failure.ExitConfig, Text: text, Facts: []failure.Fact{failure.Setting(c, key)},
		Actions: failure.Actions("Apply the change", "stop the whole program and start it again", "Keep the old one", "revert the change"),
	}
	if was, ok := of.value(key); ok && d.Chosen == of.Driver {
		f.Facts = append(f.Facts, failure.Fact{Name: "old value", Value: quoted(was)})
	}
	return f
}

// value returns the recorded value of a key.
func (p pin) value(key string) (string, bool) {
	if strings.HasSuffix(key, ".url") {
		key = serverKey
	}
	was, ok := p.At[key]
	return was, ok
}

// quoted returns a value for display: "not set" if it is empty.
func quoted(value string) string {
	if value == "" {
		return "not set"
	}
	return mask.Text(value)
}
