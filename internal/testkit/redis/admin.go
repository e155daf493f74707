package redistest

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// doTimeout is the timeout of one command of a test.
const doTimeout = 5 * time.Second

// Do sends one command on a new connection and returns the answer: string, int64, nil or []any; an error answer is a ReplyError.
func (s *Server) Do(args ...any) (any, error) {
	conn, err := s.dial()
	if err != nil {
		return nil, fmt.Errorf("redistest: %v: %w", args, err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(doTimeout))
	replies := newSplitter(conn)
	if s.options.Password != "" {
		if _, err := roundTrip(conn, replies, []any{"AUTH", s.options.Password}); err != nil {
			return nil, err
		}
	}
	return roundTrip(conn, replies, args)
}

func roundTrip(conn net.Conn, replies *splitter, args []any) (any, error) {
	if _, err := conn.Write(encode(args)); err != nil {
		return nil, fmt.Errorf("redistest: %v: %w", args, err)
	}
	frame, err := replies.next()
	if err != nil {
		return nil, fmt.Errorf("redistest: %v: %w", args, err)
	}
	v, err := decode(frame)
	if err != nil {
		return nil, fmt.Errorf("redistest: %v: %w", args, err)
	}
	if e, ok := v.(ReplyError); ok {
		return nil, fmt.Errorf("redistest: %v: %w", args, e)
	}
	return v, nil
}

// Info returns one section of INFO, by field.
func (s *Server) Info(section string) (map[string]string, error) {
	text, err := s.text("INFO", section)
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

// Commands returns the number of executions of each command, by lower-case name,
// since the start of the server or since ResetCommands. Calls by scripts count.
func (s *Server) Commands() (map[string]int, error) {
	info, err := s.Info("commandstats")
	if err != nil {
		return nil, err
	}
	calls := map[string]int{}
	for field, stats := range info {
		name := strings.TrimPrefix(field, "cmdstat_")
		first, _, _ := strings.Cut(stats, ",")
		n, err := strconv.Atoi(strings.TrimPrefix(first, "calls="))
		if err != nil {
			return nil, fmt.Errorf("redistest: read %s=%q: %w", field, stats, err)
		}
		calls[name] = n
	}
	return calls, nil
}

// ResetCommands sets the counters of Commands to zero.
func (s *Server) ResetCommands() error { return s.do("CONFIG", "RESETSTAT") }

// Clients returns the fields of each connection of CLIENT LIST, except its own.
func (s *Server) Clients() ([]map[string]string, error) {
	text, err := s.text("CLIENT", "LIST")
	if err != nil {
		return nil, err
	}
	var clients []map[string]string
	for line := range strings.Lines(text) {
		c := map[string]string{}
		for field := range strings.FieldsSeq(line) {
			name, value, _ := strings.Cut(field, "=")
			c[name] = value
		}
		if c["cmd"] != "client|list" {
			clients = append(clients, c)
		}
	}
	return clients, nil
}

// PauseClients makes the server delay all clients except replicas for d (CLIENT
// PAUSE). Nothing ends the pause early: CLIENT UNPAUSE has to wait too.
func (s *Server) PauseClients(d time.Duration) error {
	return s.do("CLIENT", "PAUSE", d.Milliseconds(), "ALL")
}

// KillPubSub closes every connection with a subscription and returns their number.
func (s *Server) KillPubSub() (int, error) { return s.kill("pubsub") }

// KillClients closes every ordinary connection except its own, and returns their
// number.
func (s *Server) KillClients() (int, error) { return s.kill("normal") }

func (s *Server) kill(kind string) (int, error) {
	v, err := s.Do("CLIENT", "KILL", "TYPE", kind)
	n, _ := v.(int64)
	return int(n), err
}

// FlushAll removes every key.
func (s *Server) FlushAll() error { return s.do("FLUSHALL") }

// ScriptFlush removes all cached scripts.
func (s *Server) ScriptFlush() error { return s.do("SCRIPT", "FLUSH") }

func (s *Server) do(args ...any) error {
	_, err := s.Do(args...)
	return err
}

func (s *Server) text(args ...any) (string, error) {
	v, err := s.Do(args...)
	if err != nil {
		return "", err
	}
	text, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("redistest: %v answered %T", args, v)
	}
	return text, nil
}
