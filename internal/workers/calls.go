package workers

import (
	"encoding/json"
	"time"

	"github.com/megaframework/mega/internal/settings"
)

// The calls on the line. The comment names the caller.
const (
	callConfig   = "config"   // worker: get the files to load the configuration from
	callPlace    = "decided"  // worker: get the place of locks and messages
	callReady    = "ready"    // worker: report that it has started, with its boot report
	callTurn     = "turn"     // worker: ask whether it has to run an OnPrimary function
	callDone     = "done"     // worker: report that it has run the function
	callOthers   = "others"   // worker that ends: ask whether the others continue
	callDraining = "draining" // worker: stops accepting; ask whether the others do, too
	callReload   = "reload"   // supervisor: reload the configuration from these files
	callAlive    = "alive"    // supervisor: check that the worker responds
	callCheck    = "check"    // supervisor: get the readiness, as /readyz?verbose
)

// yes and no are the answers to callTurn, callOthers and callDraining.
const yes, no = "yes", "no"

func word(is bool) []byte {
	if is {
		return []byte(yes)
	}
	return []byte(no)
}

// readyMessage is the body of callReady.
type readyMessage struct {
	Report json.RawMessage `json:"report"`
	Socket string          `json:"socket"`          // path of the admin socket, for the supervisor; empty without one
	Grace  time.Duration   `json:"grace,omitempty"` // the time that it needs to end; its configuration may differ from the supervisor's

	Read *settings.Files `json:"read,omitempty"` // files that it has read itself, as the first worker of its generation
}
