package wire

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// appendCommand appends a command in RESP.
func appendCommand(b []byte, args []string) []byte {
	b = appendHeader(b, '*', len(args))
	for _, a := range args {
		b = appendText(b, a)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	b = append(appendHeader(b, '$', len(s)), s...)
	return append(b, '\r', '\n')
}

func appendHeader(b []byte, kind byte, n int) []byte {
	b = strconv.AppendInt(append(b, kind), int64(n), 10)
	return append(b, '\r', '\n')
}

// reply is one answer: nil, a string, an int64 or a []any of these; or an error.
type reply struct {
	value any
	err   error
}

// serverError is an error that a server answers.
type serverError string

func (e serverError) Error() string { return string(e) }

// RedisError implements [goredis.Error].
func (serverError) RedisError() {}

var (
	errUnasked = errors.New("redis: an answer without a call")
	errSyntax  = errors.New("redis: an answer that is not RESP")
	errReplica = errors.New("redis: the server has become a replica")
)

// nesting is how deep arrays may be nested. Answers to scripts have three levels.
const nesting = 16

// parseReply reads the answer at the start of b, and returns its length, or 0 if
// it is not complete. It allocates in proportion to b, whatever lengths b claims.
func parseReply(b []byte) (r reply, size int, broken error) {
	return parseNested(b, nesting)
}

func parseNested(b []byte, depth int) (r reply, size int, broken error) {
	end := bytes.IndexByte(b, '\n') + 1
	if end == 0 {
		return reply{}, 0, nil
	}
	if end < 3 || b[end-2] != '\r' {
		return reply{}, 0, errSyntax
	}
	line := b[1 : end-2]
	switch b[0] {
	case '+':
		return reply{value: string(line)}, end, nil
	case '-':
		return reply{err: serverError(line)}, end, nil
	case '_':
		return reply{err: goredis.Nil}, end, nil
	}
	n, err := strconv.ParseInt(string(line), 10, 64)
	if err != nil {
		return reply{}, 0, errSyntax
	}
	switch {
	case b[0] == ':':
		return reply{value: n}, end, nil
	case b[0] != '$' && b[0] != '*' || n < -1 || depth == 0:
		return reply{}, 0, errSyntax
	case n < 0:
		return reply{err: goredis.Nil}, end, nil
	case b[0] == '$':
		return parseText(b, end, n)
	case n > int64(len(b)-end)/3: // the shortest item has three bytes
		return reply{}, 0, nil
	}
	items := make([]any, n)
	for i := range items {
		item, length, broken := parseNested(b[end:], depth-1)
		if broken != nil || length == 0 {
			return reply{}, 0, broken
		}
		end += length
		if item.err == nil {
			items[i] = item.value
		}
	}
	return reply{value: items}, end, nil
}

// parseText reads a string of n bytes that begins at b[start].
func parseText(b []byte, start int, n int64) (reply, int, error) {
	if n > int64(len(b)-start)-2 {
		return reply{}, 0, nil
	}
	end := start + int(n)
	if b[end] != '\r' || b[end+1] != '\n' {
		return reply{}, 0, errSyntax
	}
	return reply{value: string(b[start:end])}, end + 2, nil
}

// extent finds the end of an answer that arrives in pieces, without a second look
// at what it has seen. The zero value is at the start.
type extent struct {
	at    int   // where the next item begins
	items int64 // after that one
}

// complete reports whether the answer at the start of b is complete, or not RESP.
func (e *extent) complete(b []byte) bool {
	for e.items >= 0 {
		line := bytes.IndexByte(b[e.at:], '\n')
		if line < 0 {
			return false
		}
		next := e.at + line + 1
		if kind := b[e.at]; kind == '$' || kind == '*' {
			n, err := strconv.ParseInt(string(bytes.TrimSuffix(b[e.at+1:next-1], []byte{'\r'})), 10, 64)
			switch {
			case err != nil:
				return true
			case kind == '*' && n > 0:
				e.items = min(e.items, math.MaxInt64-n) + n
			case kind == '$' && n >= 0 && n > int64(len(b)-next)-2:
				return false
			case kind == '$' && n >= 0:
				next += int(n) + 2
			}
		}
		e.at, e.items = next, e.items-1
	}
	return true
}

// ScriptError is the beginning of an error inside a script, before version 7. The
// error of the command follows.
const ScriptError = "ERR Error running script"

// isReplica reports whether the server has become a replica.
func isReplica(err error) bool {
	answer, ok := errors.AsType[goredis.Error](err)
	return ok && (strings.HasPrefix(answer.Error(), "READONLY ") || strings.HasPrefix(answer.Error(), "MASTERDOWN ") ||
		strings.HasPrefix(answer.Error(), ScriptError) && strings.Contains(answer.Error(), "-READONLY "))
}

// IsTimeout reports whether a connection has exceeded a deadline.
func IsTimeout(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout()
}
