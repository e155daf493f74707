package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// The limits of the splitter are far above the frames of a lock, and far below the
// memory of a test.
const (
	maxFrame = 64 << 20
	maxLine  = 64 << 10
	maxDepth = 32
)

var errProtocol = errors.New("redistest: not RESP")

// splitter cuts a stream into RESP frames, of versions 2 and 3, without
// changing a byte of them.
type splitter struct {
	r     *bufio.Reader
	frame bytes.Buffer
}

func newSplitter(r io.Reader) *splitter { return &splitter{r: bufio.NewReader(r)} }

// next returns the next whole frame, which the caller may keep. At the end of the
// stream it returns io.EOF, or io.ErrUnexpectedEOF inside a frame.
func (s *splitter) next() ([]byte, error) {
	s.frame = bytes.Buffer{}
	err := s.value(0)
	if errors.Is(err, io.EOF) && s.frame.Len() > 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	return s.frame.Bytes(), nil
}

// value copies one value, with what is nested in it, to the frame.
func (s *splitter) value(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: nested deeper than %d", errProtocol, maxDepth)
	}
	line, err := s.line()
	if err != nil {
		return err
	}
	switch line[0] {
	case '$', '=', '!':
		return s.bulk(line)
	case '*', '~', '>':
		return s.values(line, 1, depth)
	case '%':
		return s.values(line, 2, depth)
	case '|': // an attribute belongs to the value that follows it
		if err := s.values(line, 2, depth); err != nil {
			return err
		}
		return s.value(depth + 1)
	}
	return nil // one line: a simple type, or an inline command
}

// line copies one line to the frame and returns it without its end.
func (s *splitter) line() ([]byte, error) {
	start := s.frame.Len()
	for {
		part, err := s.r.ReadSlice('\n')
		s.frame.Write(part)
		if s.frame.Len()-start > maxLine || s.frame.Len() > maxFrame {
			return nil, fmt.Errorf("%w: a line of more than %d bytes", errProtocol, maxLine)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return nil, err
		}
		line := bytes.TrimRight(s.frame.Bytes()[start:], "\r\n")
		if len(line) == 0 {
			return nil, fmt.Errorf("%w: an empty line", errProtocol)
		}
		return line, nil
	}
}

func (s *splitter) bulk(line []byte) error {
	n, err := length(line)
	if err != nil || n < 0 {
		return err
	}
	if s.frame.Len()+n+2 > maxFrame {
		return fmt.Errorf("%w: a string of %d bytes", errProtocol, n)
	}
	// CopyN grows the buffer as data arrive. A length that is announced and not sent costs no memory.
	if _, err := io.CopyN(&s.frame, s.r, int64(n)+2); err != nil {
		return inside(err)
	}
	if !bytes.HasSuffix(s.frame.Bytes(), []byte("\r\n")) {
		return fmt.Errorf("%w: a string longer than its length", errProtocol)
	}
	return nil
}

func (s *splitter) values(line []byte, each, depth int) error {
	n, err := length(line)
	if err != nil {
		return err
	}
	if n > maxFrame {
		return fmt.Errorf("%w: %d elements", errProtocol, n)
	}
	for range n * each {
		if err := s.value(depth + 1); err != nil {
			return inside(err)
		}
	}
	return nil
}

// length returns the number in a line such as "$5"; -1 means null.
func length(line []byte) (int, error) {
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || n < -1 {
		return 0, fmt.Errorf("%w: length %q", errProtocol, line)
	}
	return n, nil
}

func inside(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// ReplyError is an error that the server answered, such as "ERR unknown
// command".
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// decode turns a frame into a value: string, int64, nil, ReplyError or []any.
// A map is the flat list of its keys and values; doubles, big numbers and
// booleans stay text.
func decode(frame []byte) (any, error) {
	d := decoder{rest: frame}
	v := d.value(0)
	if d.failed || len(d.rest) > 0 {
		return nil, fmt.Errorf("%w: %.80q", errProtocol, frame)
	}
	return v, nil
}

type decoder struct {
	rest   []byte
	failed bool
}

func (d *decoder) value(depth int) any {
	line, rest, ok := bytes.Cut(d.rest, []byte("\n"))
	line = bytes.TrimRight(line, "\r\n")
	if !ok || len(line) == 0 || depth > maxDepth || d.failed {
		d.failed = true
		return nil
	}
	d.rest = rest
	switch line[0] {
	case '-':
		return ReplyError(line[1:])
	case ':':
		return d.integer(line)
	case '_':
		return nil
	case '$', '=', '!':
		return d.bulk(line)
	case '*', '~', '>':
		return d.values(line, 1, depth)
	case '%':
		return d.values(line, 2, depth)
	case '|':
		d.values(line, 2, depth)
		return d.value(depth + 1)
	case '+', ',', '#', '(':
		return string(line[1:])
	}
	return inline(string(line))
}

func (d *decoder) integer(line []byte) any {
	n, err := strconv.ParseInt(string(line[1:]), 10, 64)
	d.failed = d.failed || err != nil
	return n
}

func (d *decoder) bulk(line []byte) any {
	n, err := length(line)
	if n < 0 && err == nil {
		return nil
	}
	if err != nil || n > len(d.rest)-2 {
		d.failed = true
		return nil
	}
	text := string(d.rest[:n])
	d.rest = d.rest[n+2:]
	if line[0] == '!' {
		return ReplyError(text)
	}
	return text
}

func (d *decoder) values(line []byte, each, depth int) any {
	n, err := length(line)
	if err != nil {
		d.failed = true
	}
	if n < 0 || d.failed {
		return nil
	}
	list := []any{}
	for i := 0; i < n*each && !d.failed; i++ {
		list = append(list, d.value(depth+1))
	}
	return list
}

// inline parses a command that was sent as one line of words.
func inline(line string) any {
	list := []any{}
	for word := range strings.FieldsSeq(line) {
		list = append(list, word)
	}
	return list
}

// encode returns a command as a client sends it.
func encode(args []any) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		s := fmt.Sprint(a)
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(s), s)
	}
	return b
}
