package services

import (
	"context"
	"crypto/rand"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
)

// Messages shows the promises of the bus. Each process keeps the newest messages
// that it received, for pages without scripts.
type Messages struct {
	mu    sync.Mutex // guards the fields below
	notes []Note     // the newest first
	batch Batch
}

// NewMessages returns Messages that have received nothing.
func NewMessages() *Messages { return &Messages{} }

// Note is an event that a visitor publishes.
type Note struct {
	Text string    `json:"text"`
	PID  int       `json:"pid"` // of the publisher
	At   time.Time `json:"at"`
}

// Job is an event for one worker of a group.
type Job struct {
	Batch  int64 `json:"batch"` // a later batch has a higher number
	Number int   `json:"number"`
}

// JobDone is the event that a worker has received a job.
type JobDone struct {
	Job
	PID int `json:"pid"`
}

// Echo is a request, and its answer.
type Echo struct {
	Text string `json:"text"`
	PID  int    `json:"pid,omitempty"` // of the responder
}

// The subjects of the page.
const (
	Notes    = bus.Topic[Note]("demo.note")
	Jobs     = bus.Topic[Job]("demo.job")
	JobsDone = bus.Topic[JobDone]("demo.job.done")
	EchoOf   = "demo.echo"
	NobodyOf = "demo.nobody" // has no responder
)

// Workers is the group that shares the jobs.
const Workers = "demo-workers"

const keptNotes = 10

// Publish publishes a note.
func (m *Messages) Publish(ctx *mega.Ctx, text string) (Note, error) {
	n := Note{Text: text, PID: os.Getpid(), At: time.Now().UTC()}
	return n, mega.Publish(ctx, Notes, n)
}

// OnNote keeps a note.
func (m *Messages) OnNote(_ *mega.Ctx, n Note) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notes = slices.Insert(m.notes, 0, n)
	m.notes = m.notes[:min(len(m.notes), keptNotes)]
	return nil
}

// Share publishes a batch of jobs, which the group shares.
func (m *Messages) Share(ctx *mega.Ctx, jobs int) error {
	batch := time.Now().UnixMicro()
	for i := range jobs {
		if err := mega.Publish(ctx, Jobs, Job{batch, i + 1}); err != nil {
			return err
		}
	}
	return nil
}

// OnJob reports that this process has received a job.
func (m *Messages) OnJob(ctx *mega.Ctx, j Job) error {
	return mega.Publish(ctx, JobsDone, JobDone{j, os.Getpid()})
}

// Batch is the newest batch of jobs.
type Batch struct {
	Number  int64   `json:"number"`
	Workers []Share `json:"workers"`
}

// Share is the jobs of a batch that one worker received.
type Share struct {
	PID  int   `json:"pid"`
	Jobs []int `json:"jobs"`
}

// OnDone keeps which worker received a job of the newest batch.
func (m *Messages) OnDone(_ *mega.Ctx, d JobDone) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d.Batch > m.batch.Number {
		m.batch = Batch{Number: d.Batch}
	}
	if d.Batch < m.batch.Number {
		return nil
	}
	i := slices.IndexFunc(m.batch.Workers, func(s Share) bool { return s.PID == d.PID })
	if i < 0 {
		i = len(m.batch.Workers)
		m.batch.Workers = append(m.batch.Workers, Share{PID: d.PID})
	}
	m.batch.Workers[i].Jobs = append(m.batch.Workers[i].Jobs, d.Number)
	return nil
}

// Received returns the newest notes, and the newest batch in the order of the
// workers' numbers.
func (m *Messages) Received() ([]Note, Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := Batch{Number: m.batch.Number, Workers: []Share{}}
	for _, s := range m.batch.Workers {
		b.Workers = append(b.Workers, Share{s.PID, slices.Sorted(slices.Values(s.Jobs))})
	}
	slices.SortFunc(b.Workers, func(a, b Share) int { return a.PID - b.PID })
	return append([]Note{}, m.notes...), b
}

// AnswerEcho answers with the text and the process.
func (m *Messages) AnswerEcho(_ *mega.Ctx, in Echo) (Echo, error) {
	return Echo{in.Text, os.Getpid()}, nil
}

// SlowResult is the result of a slow subscriber.
type SlowResult struct {
	Sent    int       `json:"sent"`
	Buffer  int       `json:"buffer"`
	Handled int       `json:"handled"`
	Missed  int       `json:"missed"`
	Gaps    []SlowGap `json:"gaps"`
}

// SlowGap is a place at which a subscriber missed messages.
type SlowGap struct {
	After  int `json:"after"` // the number of the message that was handled before
	Missed int `json:"missed"`
}

const (
	slowBuffer = 10
	slowWork   = 2 * time.Millisecond
	slowBytes  = 64 << 10
	slowBurst  = 50
	slowPause  = 20 * time.Millisecond
)

// Slow publishes numbered messages in bursts to a subscriber that works on each,
// and returns when each of them was handled or reported as missed. A gap of unknown
// size, which an outage leaves, is bus.ErrDisconnected.
func (m *Messages) Slow(ctx *mega.Ctx, messages int) (*SlowResult, error) {
	subject := "demo.slow." + rand.Text()
	s := newSlowSubscriber(messages)
	sub, err := ctx.Bus.Subscribe(subject, s.handle, bus.Buffer(slowBuffer, slowBytes), bus.OnGap(s.gap))
	if err != nil {
		return nil, err
	}
	defer sub.Stop()
	for i := range messages {
		if err := ctx.Bus.Publish(subject, i+1); err != nil {
			return nil, err
		}
		if (i+1)%slowBurst == 0 {
			time.Sleep(slowPause)
		}
	}
	select {
	case <-s.all:
		if s.err != nil {
			return nil, s.err
		}
		return &s.result, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// slowSubscriber counts the messages that it handles and misses. The bus calls it for one
// message or gap at a time.
type slowSubscriber struct {
	result SlowResult
	last   int
	ended  bool
	err    error         // why the result is not complete
	all    chan struct{} // closed at the end, after which the fields do not change
}

func newSlowSubscriber(messages int) *slowSubscriber {
	return &slowSubscriber{result: SlowResult{Sent: messages, Buffer: slowBuffer, Gaps: []SlowGap{}}, all: make(chan struct{})}
}

func (s *slowSubscriber) handle(_ *mega.Ctx, m *bus.Msg) error {
	if s.ended {
		return nil
	}
	time.Sleep(slowWork)
	s.result.Handled++
	err := m.Decode(&s.last)
	s.finish()
	return err
}

func (s *slowSubscriber) gap(_ context.Context, missed int) error {
	switch {
	case s.ended:
	case missed < 0:
		s.end(bus.ErrDisconnected)
	default:
		s.result.Gaps = append(s.result.Gaps, SlowGap{s.last, missed})
		s.result.Missed += missed
		s.finish()
	}
	return nil
}

func (s *slowSubscriber) finish() {
	if s.result.Handled+s.result.Missed == s.result.Sent {
		s.end(nil)
	}
}

func (s *slowSubscriber) end(err error) {
	s.ended, s.err = true, err
	close(s.all)
}
