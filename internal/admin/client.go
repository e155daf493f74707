package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/private"
)

// findTime is the timeout for a process to identify itself.
const findTime = time.Second

// maxAnswer bounds the size of one answer, in bytes.
const maxAnswer = 64 << 20

// Found is a process that has an admin socket.
type Found struct {
	Path string
	Info Info
	Err  error // why it did not identify itself: it may be stopped, or very busy
}

// Find asks every process of this user for its Info and returns those of that
// name, or all of them if name is empty, sorted by name and number. A process
// that does not answer is included, with Err, if its socket has that name.
func Find(ctx context.Context, folders []string, name string) ([]Found, error) {
	if !private.Supported {
		return nil, ErrUnsupported
	}
	all := identify(ctx, sockets(folders))
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(f Found) bool { return gone(f.Err) || !f.hasName(name) })
	slices.SortFunc(all, func(a, b Found) int {
		return cmp.Or(cmp.Compare(a.Info.Name, b.Info.Name), cmp.Compare(a.Info.PID, b.Info.PID), cmp.Compare(a.Path, b.Path))
	})
	return all, nil
}

// identify asks the processes at the sockets for their Info, all at the same time.
func identify(ctx context.Context, paths []string) []Found {
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	all := make([]Found, len(paths))
	var asking sync.WaitGroup
	for i, path := range paths {
		asking.Go(func() {
			info, err := Dial(path).Process(ctx)
			all[i] = Found{path, info, err}
		})
	}
	asking.Wait()
	return all
}

// hasName reports whether the process has that name. The name of a process that
// does not answer is the name of its socket.
func (f Found) hasName(name string) bool {
	switch {
	case name == "":
		return true
	case f.Err == nil:
		return f.Info.Name == name
	}
	return strings.HasPrefix(filepath.Base(f.Path), fileNameOf(name)+".")
}

// Client calls one process. Each call opens its own connection, so a Client
// needs no Close.
type Client struct {
	path   string
	worker int // 0 lets the process choose
	http   http.Client
}

// Dial returns a Client of the socket at path. Nothing is connected yet.
func Dial(path string) *Client {
	return &Client{path: path, http: http.Client{Transport: transport(path)}}
}

// Worker returns a Client of one of the workers behind the same socket.
func (c *Client) Worker(id int) *Client { return &Client{c.path, id, c.http} }

// Error is the answer to a refused or failed call.
type Error struct {
	Status int
	code   string
	Text   string
}

// Error returns the text of the process.
func (e *Error) Error() string { return e.Text }

// Code returns the dotted code.
func (e *Error) Code() string { return e.code }

// Process returns the Info of the process.
func (c *Client) Process(ctx context.Context) (Info, error) { return get[Info](ctx, c, "/process") }

// Locks returns the locks in use whose keys begin with prefix, at most limit,
// or 100 if that is 0.
func (c *Client) Locks(ctx context.Context, prefix string, limit int) (Listing, error) {
	q := url.Values{"prefix": {prefix}}
	if limit != 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return get[Listing](ctx, c, "/locks?"+q.Encode())
}

// Lock returns the holders and waiters of key.
func (c *Client) Lock(ctx context.Context, key string) (Entry, error) {
	return get[Entry](ctx, c, "/lock?"+url.Values{"key": {key}}.Encode())
}

// Release ends the leases of key by force, or one of them, and returns the number of
// leases that it ended.
func (c *Client) Release(ctx context.Context, key, reason string, only Only) (released int, err error) {
	if err := checkKey("lock", key); err != nil {
		return 0, err
	}
	var out releaseAnswer
	err = c.post(ctx, "/lock/release", releaseRequest{key, reason, only}, &out)
	return out.Released, err
}

// Heal puts a withdrawn or resting slot of the pool key back into circulation.
func (c *Client) Heal(ctx context.Context, key string, slot int, reason string) error {
	if err := checkKey("lock", key); err != nil {
		return err
	}
	return c.post(ctx, "/lock/heal", healRequest{key, slot, reason}, nil)
}

// checkKey returns a refusal of a key that JSON would replace by another one.
func checkKey(what, key string) error {
	if utf8.ValidString(key) {
		return nil
	}
	return &Error{http.StatusBadRequest, what + ".invalid_key", fmt.Sprintf("%s: key %q is not valid UTF-8", what, key)}
}

// Reload requests the process to read its configuration again and returns the
// changes.
func (c *Client) Reload(ctx context.Context) ([]config.Change, error) {
	var out reloadAnswer
	err := c.post(ctx, "/config/reload", struct{}{}, &out)
	return out.Changes, err
}

// Workers returns the workers of a supervisor.
func (c *Client) Workers(ctx context.Context) ([]Worker, error) {
	return get[[]Worker](ctx, c, "/workers")
}

// Restart requests a supervisor to replace a worker, or all of them if id is 0,
// and returns the number of replaced workers.
func (c *Client) Restart(ctx context.Context, id int) (restarted int, err error) {
	var out restartAnswer
	err = c.post(ctx, "/worker/restart", restartRequest{id}, &out)
	return out.Restarted, err
}

// SetLevel sets the minimum log level of an app, or of the whole process if app
// is empty.
func (c *Client) SetLevel(ctx context.Context, app, level string) error {
	return c.post(ctx, "/log", levelRequest{app, level}, nil)
}

// Topics returns the patterns of the process's subscriptions and responders.
func (c *Client) Topics(ctx context.Context) ([]Topic, error) {
	return get[[]Topic](ctx, c, "/bus/topics")
}

// Publish publishes an event through the process, and returns when the event
// has left the process.
func (c *Client) Publish(ctx context.Context, m Message) error {
	return c.post(ctx, "/bus/pub", m, nil)
}

// Request makes a request through the process, and returns the answer. A
// responder's error is an *Error with its code.
func (c *Client) Request(ctx context.Context, m Message) (r Reply, err error) {
	err = c.post(ctx, "/bus/req", m, &r)
	return r, err
}

// Tail calls begun when the process has subscribed to pattern, and see with
// each later event, until ctx ends or one of the functions returns an error,
// which Tail returns. It returns nil when the process ends.
func (c *Client) Tail(ctx context.Context, pattern string, begun func(), see func(Event) error) error {
	w, err := c.open(ctx, http.MethodGet, "/bus/tail?"+url.Values{"pattern": {pattern}}.Encode(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = w.Body.Close() }()
	begun()
	for events := json.NewDecoder(w.Body); ; {
		var e Event
		switch err := events.Decode(&e); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), gone(err):
			return nil
		case err != nil:
			return fmt.Errorf("read the events of %s: %w", c.path, err)
		}
		if err := see(e); err != nil {
			return err
		}
	}
}

// Get decodes the JSON at path, such as /boot, /config or /routes, into v.
func (c *Client) Get(ctx context.Context, path string, v any) error {
	return c.do(ctx, http.MethodGet, path, nil, v)
}

// get returns the answer at path.
func get[T any](ctx context.Context, c *Client, path string) (answer T, err error) {
	err = c.Get(ctx, path, &answer)
	return answer, err
}

func (c *Client) post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return c.do(ctx, http.MethodPost, path, body, out)
}

func (c *Client) do(ctx context.Context, method, path string, body []byte, v any) error {
	w, err := c.open(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = w.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(w.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("read the answer of %s: %w", c.path, err)
	case len(text) > maxAnswer:
		return fmt.Errorf("read the answer of %s: longer than %d MiB", c.path, maxAnswer>>20)
	case v == nil:
		return nil
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.path, err)
	}
	return nil
}

// open sends a request and returns the response with status 200, whose body the
// caller closes. Any other status is an *Error.
func (c *Client) open(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://admin"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if c.worker != 0 {
		q := r.URL.Query()
		q.Set(workerQuery, strconv.Itoa(c.worker))
		r.URL.RawQuery = q.Encode()
	}
	w, err := c.http.Do(r)
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err // the URL of a socket is made up
	}
	switch {
	case gone(err):
		return nil, fmt.Errorf("the process behind %s has ended: %w", c.path, err)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("the process behind %s does not answer (is it stopped?): %w", c.path, err)
	case err != nil:
		return nil, fmt.Errorf("ask the process behind %s: %w", c.path, err)
	case w.StatusCode == http.StatusOK:
		return w, nil
	}
	defer func() { _ = w.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(w.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", c.path, err)
	}
	return nil, refused(w.StatusCode, text)
}

func refused(status int, text []byte) error {
	var no refusal
	if json.Unmarshal(text, &no) != nil || no.Text == "" {
		no = refusal{"internal", fmt.Sprintf("status %d: %s", status, bytes.TrimSpace(text[:min(len(text), 200)]))}
	}
	return &Error{status, no.Code, no.Text}
}
