package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/internal/shell"
)

// Config describes a server.
type Config struct {
	Process shell.Process
	Backend shell.Backend // as the flags name it
	Version string
	In      io.ReadCloser
	Out     io.WriteCloser
}

// server is the one connection of this process.
type server struct {
	config Config
	sdk    *sdk.Server
	ctx    context.Context // ends with the connection, or when the process has to end
	end    context.CancelFunc
	group  group.Group // watches the leases

	opening chan struct{}     // has an element while a call opens the backend; room for one
	backend *shell.Connection // belongs to the goroutine that has put the element there

	mu     sync.Mutex // guards the fields below
	closed bool       // add refuses further leases
	leases map[string]*clientLease
	losses []string // reports for the next answer
}

// endTime is the timeout of the end of the connection, after the commands have ended:
// a client that does not read would block it.
const endTime = 15 * time.Second

const instructions = "Locks and limits that processes share. lock_exec runs a command while nobody else has the lock, with slots N at most N " +
	"at once; it is safer than lock_acquire, which takes a lock for several steps. limit_exec and limit_permit bound how often something " +
	"is done. An error has a code; lock.not_acquired and limit.limited mean that others were first."

// Serve serves the client at c.In and c.Out until it disconnects or ctx ends. It
// returns when all leases are released and all calls have returned. The error is a
// *shell.Error; the end of the input and of ctx are no errors.
func Serve(ctx context.Context, c Config) error {
	b := c.Backend
	if err := b.Resolve(c.Process.Environ); err != nil { // before the client relies on it
		return err
	}
	s := &server{config: c, opening: make(chan struct{}, 1), leases: make(map[string]*clientLease)}
	s.ctx, s.end = context.WithCancel(ctx)
	defer s.end()
	s.group.Init()
	s.sdk = sdk.NewServer(&sdk.Implementation{Name: "mega", Title: "Locks and limits of mega", Version: c.Version}, &sdk.ServerOptions{
		Instructions: instructions,
		Capabilities: &sdk.ServerCapabilities{Logging: &sdk.LoggingCapabilities{}, Tools: &sdk.ToolCapabilities{}}, //nolint:staticcheck // see reportLoss
	})
	s.addTools()
	ended, out := make(chan error, 1), &outputWriter{WriteCloser: c.Out}
	go func() { // serve waits for it
		defer s.end()
		ended <- s.sdk.Run(s.ctx, &sdk.IOTransport{Reader: newInputReader(c.In, out, s.end), Writer: out})
	}()
	return s.serve(ended)
}

// serve waits for the end of the connection, and releases all leases and the backend.
func (s *server) serve(ended <-chan error) error {
	<-s.ctx.Done()
	s.releaseAll()
	var err error
	select {
	case err = <-ended:
	case <-time.After(endTime):
		err = errors.New("the client does not read its answers")
	}
	s.group.Close(endTime)
	s.opening <- struct{}{} // a call that has not returned may still be opening it; its context has ended
	if s.backend != nil {
		s.backend.Leave()
	}
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
		return nil
	}
	return &shell.Error{Code: "cli.failed", Exit: shell.ExitUnavailable, Text: fmt.Sprintf("The connection has failed: %v.", err)}
}

// addTool adds a tool. The context of a call ends when the client cancels the call or
// s ends.
func addTool[In any](s *server, name, description string, do func(context.Context, In) (any, error)) {
	sdk.AddTool(s.sdk, &sdk.Tool{Name: name, Description: description}, func(ctx context.Context, _ *sdk.CallToolRequest, in In) (*sdk.CallToolResult, any, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stop := context.AfterFunc(s.ctx, cancel)
		defer stop()
		out, err := do(ctx, in)
		r := answer(out, err)
		if ctx.Err() == nil { // a client does not read the answer of a call that it has cancelled
			for _, text := range s.takeLosses() {
				r.Content = append(r.Content, &sdk.TextContent{Text: text})
			}
		}
		return r, nil, nil
	})
}

// errorBody is the error in an answer.
type errorBody struct {
	Code    string   `json:"code"`
	Status  int      `json:"status"` // the exit status of the same verb
	Text    string   `json:"text"`
	Actions []string `json:"actions,omitempty"`
}

// failureBody is the answer of a failed call. Result is its partial result, if any.
type failureBody struct {
	Error  errorBody `json:"error"`
	Result any       `json:"result,omitempty"`
}

// answer returns the answer of a call with the result out, which may be nil, or err.
func answer(out any, err error) *sdk.CallToolResult {
	r := &sdk.CallToolResult{}
	if err != nil {
		e, ok := errors.AsType[*shell.Error](err)
		if !ok {
			e = &shell.Error{Code: "cli.failed", Exit: shell.ExitLost, Text: err.Error()}
		}
		e = withArguments(e)
		r.IsError = true
		r.Content = []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf("%s (%s)", strings.Join(append([]string{e.Text}, e.Actions...), "\n• "), e.Code)}}
		if out == nil {
			r.StructuredContent = failureBody{Error: errorBody{e.Code, e.Exit, e.Text, e.Actions}}
		} else {
			out = failureBody{errorBody{e.Code, e.Exit, e.Text, e.Actions}, out}
		}
	}
	if out != nil {
		text, err := json.Marshal(out)
		if err != nil {
			return answer(nil, err)
		}
		r.StructuredContent = json.RawMessage(text)
		r.Content = append(r.Content, &sdk.TextContent{Text: string(text)})
	}
	return r
}
