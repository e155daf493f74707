package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// inputReader reads the input by lines, one message in each, and answers a line that is no
// message, because the connection would end with it. It reports the end of the input
// at once: the connection itself ends only when all calls have returned.
type inputReader struct {
	io.Closer
	lines *bufio.Scanner
	rest  []byte // of the line that is being read
	out   io.Writer
	ended func()
}

func newInputReader(in io.ReadCloser, out io.Writer, ended func()) *inputReader {
	r := &inputReader{Closer: in, lines: bufio.NewScanner(in), out: out, ended: ended}
	r.lines.Buffer(nil, sdk.DefaultMaxLineLength)
	return r
}

func (r *inputReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if !r.lines.Scan() {
			r.ended()
			if err := r.lines.Err(); err != nil {
				return 0, err
			}
			return 0, io.EOF
		}
		line := bytes.TrimSpace(r.lines.Bytes())
		code, why := refused(line)
		switch {
		case code != 0:
			_, _ = fmt.Fprintf(r.out, `{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%q}}`+"\n", code, why) // the connection has this error, too
		case len(line) > 0:
			r.rest = append(bytes.Clone(line), '\n')
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// refused returns the error code of JSON-RPC for a line that is no message, and 0 for
// a message, for a list of messages, and for an empty line.
func refused(line []byte) (code int, why string) {
	switch {
	case len(line) == 0:
		return 0, ""
	case !json.Valid(line):
		return jsonrpc.CodeParseError, "parse error"
	}
	all := []json.RawMessage{line}
	if line[0] == '[' {
		_ = json.Unmarshal(line, &all) // it is valid
	}
	for _, each := range all {
		if _, err := jsonrpc.DecodeMessage(each); err != nil {
			return jsonrpc.CodeInvalidRequest, "invalid request"
		}
	}
	if len(all) == 0 {
		return jsonrpc.CodeInvalidRequest, "invalid request"
	}
	return 0, ""
}

// outputWriter writes messages one after the other.
type outputWriter struct {
	io.WriteCloser
	mu sync.Mutex
}

func (w *outputWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.WriteCloser.Write(p)
}
