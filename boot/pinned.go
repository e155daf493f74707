package boot

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/mask"
)

// What decides where locks and messages are stays what it was when the
// supervisor started: a worker that goes elsewhere would hold locks that others
// hold, too.

// pinned is where the locks and the messages of a program are.
type pinned struct {
	Lock pin `json:"lock"`
	Bus  pin `json:"bus"`
}

// pin is where one of them is: its driver, and what the keys say that place it,
// without passwords. They may change, and are no other place.
type pin struct {
	Driver string            `json:"driver"`
	Key    string            `json:"key"` // that decided
	At     map[string]string `json:"at"`
}

// placing are the keys that say where the locks or messages of a driver are,
// beside the address of its server.
func placing(d Decision) []string {
	switch d.Chosen {
	case "cluster":
		if d.Component == "bus" {
			return []string{"cluster.socket"}
		}
		return []string{"cluster.socket", "lock.namespace"}
	case "redis":
		return []string{"lock.redis.engine", "lock.redis.key", "lock.namespace"}
	case "nats":
		return []string{
			"nats.user", "nats.nkey_file", "nats.creds_file", // who we are decides which account we see
			"bus.nats.prefix", "bus.nats.event_prefix", "bus.nats.request_prefix", "bus.nats.inbox_prefix",
		}
	}
	return nil
}

// pins are where what was decided is.
func (d decisions) pins(c *config.Config) pinned { return pinned{d.lock.pin(c), d.bus.pin(c)} }

func (d Decision) pin(c *config.Config) pin {
	p := pin{Driver: d.Chosen, Key: d.Key, At: map[string]string{}}
	for _, key := range placing(d) {
		v, _ := valueOf(c, key)
		p.At[key] = v.Text
	}
	if d.Server != "" {
		p.At[serverKey] = d.place(c) // an alias may get another name
	}
	return p
}

// place is the address of the server without its credentials, which may change.
func (d Decision) place(c *config.Config) string {
	if d.Component == "bus" {
		return mask.Place(c.NATS.URL.Reveal())
	}
	return mask.Place(c.Cache[d.Cache].URL.Reveal())
}

// serverKey stands for the key of a server's address.
const serverKey = "server"

// differs returns the key by which a decision is another one than that of the
// supervisor, or nothing.
func (p pin) differs(d Decision, c *config.Config) string {
	own := d.pin(c)
	if own.Driver != p.Driver {
		if _, ok := valueOf(c, own.Key); ok {
			return own.Key
		}
		return p.Key // which is not set any more
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

// stays fails if a worker would keep its locks, or get its messages, elsewhere
// than the other workers of its supervisor do.
func (b *booting) stays(c *config.Config, d decisions) error {
	if b.member == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(b.ctx, hookBudget)
	defer cancel()
	body, err := b.member.node.Call(ctx, callDecided, nil)
	var of pinned
	if err == nil {
		err = json.Unmarshal(body, &of)
	}
	if err != nil {
		return supervisorGone(err)
	}
	if key := of.Lock.differs(d.lock, c); key != "" {
		return elsewhereNow(c, d.lock, of.Lock, key)
	}
	if key := of.Bus.differs(d.bus, c); key != "" {
		return elsewhereNow(c, d.bus, of.Bus, key)
	}
	return nil
}

// elsewhereNow is why a worker does not start beside those that use another
// place.
func elsewhereNow(c *config.Config, d Decision, of pin, key string) error {
	text := fmt.Sprintf("The configuration was changed: %s would be in another place than the program was started with.", subjectOf(d))
	if d.Chosen != of.Driver {
		text = fmt.Sprintf("The configuration was changed: %s would go by %s, but the program was started with %s.", subjectOf(d), d.Chosen, of.Driver)
	}
	f := &Failure{
		Code: "cluster.changed", Exit: ExitConfig, Text: text, Facts: []Fact{asked(c, key)},
		Actions: []string{"bring it into force:  stop the whole program and start it again", "go on as it was:      take the change back"},
	}
	if was, ok := of.value(key); ok && d.Chosen == of.Driver {
		f.Facts = append(f.Facts, Fact{Name: "it was", Value: quoted(was)})
	}
	return f
}

// value is what a key that places it says.
func (p pin) value(key string) (string, bool) {
	if strings.HasSuffix(key, ".url") {
		key = serverKey
	}
	was, ok := p.At[key]
	return was, ok
}

// quoted is a value for people, who would not see an empty one.
func quoted(value string) string {
	if value == "" {
		return "not set"
	}
	return mask.Text(value)
}
