package redis

import (
	"errors"
	"fmt"
	"net"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis/internal/wire"
	"github.com/megaframework/mega/internal/refusal"
	"github.com/megaframework/mega/lock/driver"
)

// verdict classifies an error of a call.
type verdict int

const (
	final   verdict = iota // a retry would fail in the same way
	refused                // not executed; a retry may succeed
	unknown                // maybe executed; a retry may succeed
	missing                // NOSCRIPT: not executed; the retry uses EVAL
)

// codes classifies errors of Redis by their first word. Other errors are final:
// NOAUTH, WRONGPASS, NOPERM, WRONGTYPE, ERR.
var codes = map[string]verdict{
	"NOSCRIPT":    missing,
	"MOVED":       refused,
	"ASK":         refused,
	"TRYAGAIN":    refused,
	"LOADING":     refused,
	"BUSY":        refused,
	"READONLY":    refused,
	"CLUSTERDOWN": refused,
	"MASTERDOWN":  refused,
	"MISCONF":     refused,
	"NOREPLICAS":  refused,
	"OOM":         refused,
}

// judge classifies the error of one attempt.
func judge(err error) verdict {
	if errors.Is(err, goredis.Nil) { // a Sentinel does not know the master: the call was not sent
		return refused
	}
	if answer, ok := errors.AsType[goredis.Error](err); ok {
		return judgeAnswer(answer.Error())
	}
	if _, ok := errors.AsType[otherFormat](err); ok {
		return final
	}
	var dial *net.OpError
	var open *wire.OpenError
	if errors.As(err, &open) || errors.As(err, &dial) && dial.Op == "dial" ||
		errors.Is(err, goredis.ErrPoolTimeout) || errors.Is(err, goredis.ErrPoolExhausted) {
		return refused
	}
	if errors.Is(err, goredis.ErrClosed) {
		return final
	}
	return unknown
}

// futile reports whether the same call would fail again with err.
func futile(err error) bool { return judge(err) == final || refusal.Of(err) != refusal.None }

func judgeAnswer(text string) verdict {
	word, _, _ := strings.Cut(text, " ")
	if v, ok := codes[word]; ok {
		return v
	}
	if strings.HasPrefix(text, "ERR max number of clients") {
		return refused
	}
	if strings.Contains(text, "ttempted to access a non local key") { // "Script attempted", in Valkey 9 "Attempted"
		return unknown // in a hash slot that is being moved, a key that the script has removed
	}
	if strings.HasPrefix(text, wire.ScriptError) {
		for code, v := range codes {
			if v == refused && strings.Contains(text, code+" ") {
				return v
			}
		}
	}
	return final
}

// isMoved reports whether a slot of a Cluster is served elsewhere.
func isMoved(err error) bool {
	for _, code := range []string{"MOVED ", "ASK ", "TRYAGAIN ", "CLUSTERDOWN "} {
		if goredis.HasErrorPrefix(err, code) {
			return true
		}
	}
	return false
}

// unavailable turns an error of the backend into one of the boundary's errors.
func unavailable(err error) error {
	if errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrClosed) {
		return err
	}
	if isWrongType(err) {
		return fmt.Errorf("%w: %w (another program has data at one of the names)", driver.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}
