package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/lock"
)

// maxBody bounds the body of a request, in bytes.
const maxBody = 64 << 10 // but for messages

// verbs returns the handler of the operations on a process and of its views.
// Each change is logged with the peer that requested it. Streams end with
// ending.
func verbs(ending context.Context, p Process) http.Handler {
	mux := http.NewServeMux()
	addViews(mux, p)
	v := operations{p}
	mux.HandleFunc("POST /lock/release", v.release)
	mux.HandleFunc("POST /lock/heal", v.heal)
	mux.HandleFunc("POST /limit/pause", v.pauseLimit)
	mux.HandleFunc("POST /limit/reset", v.resetLimit)
	mux.HandleFunc("POST /config/reload", v.reload)
	mux.HandleFunc("POST /log", v.level)
	mux.HandleFunc("POST /bus/pub", v.publish)
	mux.HandleFunc("POST /bus/req", v.request)
	mux.HandleFunc("GET /bus/tail", tails{p.Bus, make(chan struct{}, maxTails), ending}.serve)
	return Coded(mux)
}

// operations are the handlers of requests that change something.
type operations struct{ process Process }

func (d operations) release(w http.ResponseWriter, r *http.Request) {
	var in releaseRequest
	if !read(w, r, &in) {
		return
	}
	if strings.TrimSpace(in.Reason) == "" {
		refuse(w, http.StatusBadRequest, "request.invalid", errors.New("a forced release needs a reason; the holder that loses the lock receives it"))
		return
	}
	n, err := d.process.Locks.ForceRelease(r.Context(), in.Key, in.Reason, in.Options()...)
	if err != nil {
		fail(w, err)
		return
	}
	text := "admin: lock released by force"
	if n == 0 {
		text = "admin: no lease found to release by force"
	}
	logChange(d.process.Log, r, text, slog.String("key", in.Key), slog.String("reason", in.Reason), slog.Int("leases", n))
	answer(w, http.StatusOK, releaseAnswer{n})
}

func (d operations) heal(w http.ResponseWriter, r *http.Request) {
	var in healRequest
	if !read(w, r, &in) {
		return
	}
	if err := d.process.Locks.Heal(r.Context(), in.Key, in.Slot, in.Reason); err != nil {
		fail(w, err)
		return
	}
	logChange(d.process.Log, r, "admin: pool slot healed", slog.String("key", in.Key), slog.Int("slot", in.Slot), slog.String("reason", in.Reason))
	answer(w, http.StatusOK, struct{}{})
}

func (d operations) reload(w http.ResponseWriter, r *http.Request) {
	changes, err := d.process.Reload(r.Context())
	if err != nil {
		refuseChange(w, http.StatusUnprocessableEntity, "config.refused", err)
		return
	}
	logChange(d.process.Log, r, "admin: configuration read again", slog.Int("changes", len(changes)))
	answer(w, http.StatusOK, reloadAnswer{append([]config.Change{}, changes...)})
}

func (d operations) level(w http.ResponseWriter, r *http.Request) {
	var in levelRequest
	if !read(w, r, &in) {
		return
	}
	if err := d.process.SetLevel(in.App, in.Level); err != nil {
		refuseChange(w, http.StatusBadRequest, "request.invalid", err)
		return
	}
	logChange(d.process.Log, r, "admin: log level set", slog.String("of", in.App), slog.String("level", in.Level))
	answer(w, http.StatusOK, in)
}

// refuseChange answers with an error of a change: with status and code for a wrong
// request, or with 502 or 503 if a worker has not answered or none is ready, because the
// change is valid then.
func refuseChange(w http.ResponseWriter, status int, code string, err error) {
	if _, ok := errors.AsType[*workerError](err); ok {
		refuseWorker(w, err)
		return
	}
	if code = codeOf(err, code); code == unanswered {
		status = http.StatusBadGateway
	}
	refuse(w, status, code, err)
}

// logChange logs a change with the operator or the peer that requested it.
func logChange(log *slog.Logger, r *http.Request, text string, attrs ...slog.Attr) {
	if operator, ok := operatorFrom(r.Context()); ok {
		log.LogAttrs(r.Context(), slog.LevelWarn, text, append(attrs, slog.Group("by", slog.String("console", operator)))...)
		return
	}
	p, _ := peerFrom(r.Context())
	attrs = append(attrs, slog.Group("by", slog.String("user", p.User()), slog.Int("uid", p.UID), slog.Int("pid", p.PID)))
	log.LogAttrs(r.Context(), slog.LevelWarn, text, attrs...)
}

// Only restricts a forced release to one holder. The zero Only means all of them.
type Only struct {
	Slot  *int    `json:"slot,omitempty"`
	Fence *uint64 `json:"fence,omitempty"` // as Lock and Locks show it
}

// Options returns the options of [lock.Locker.ForceRelease].
func (o Only) Options() (all []lock.ForceOption) {
	if o.Slot != nil {
		all = append(all, lock.OnlySlot(*o.Slot))
	}
	if o.Fence != nil {
		all = append(all, lock.OnlyFence(*o.Fence))
	}
	return all
}

// The parameters and results of the verbs.
type (
	releaseRequest struct {
		Key    string `json:"key"`
		Reason string `json:"reason"`
		Only
	}
	healRequest struct {
		Key    string `json:"key"`
		Slot   int    `json:"slot"`
		Reason string `json:"reason"`
	}
	releaseAnswer struct {
		Released int `json:"released"`
	}
	reloadAnswer struct {
		Changes []config.Change `json:"changes"`
	}
	levelRequest struct {
		App   string `json:"app"`
		Level string `json:"level"`
	}
)

// read decodes the body of a request strictly, or answers with an error.
func read(w http.ResponseWriter, r *http.Request, in any) bool {
	err := readUpTo(w, r, maxBody, in)
	if err != nil {
		refuseBody(w, err)
	}
	return err == nil
}

func readUpTo(w http.ResponseWriter, r *http.Request, limit int64, in any) error {
	d := json.NewDecoder(http.MaxBytesReader(unwrapped(w), r.Body, limit))
	d.DisallowUnknownFields()
	if err := d.Decode(in); err != nil {
		return err
	}
	if _, more := d.Token(); !errors.Is(more, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}

func refuseBody(w http.ResponseWriter, err error) {
	refuse(w, http.StatusBadRequest, "request.bad_body", fmt.Errorf("decode the body: %w", err))
}

// unwrapped returns the writer of net/http. MaxBytesReader makes that one give the
// client time to read the answer before the connection is closed.
func unwrapped(w http.ResponseWriter) http.ResponseWriter {
	if p, ok := w.(*deadlineWriter); ok {
		return p.ResponseWriter
	}
	return w
}
