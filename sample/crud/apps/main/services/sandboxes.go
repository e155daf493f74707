package services

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/sample/crud/apps/main/store"
)

// Sandboxes run jobs in numbered folders, one job in each at a time.
type Sandboxes struct {
	journal *store.Journal
	dir     string
	pool    *lock.Pool
}

const (
	// SandboxCount is the number of the sandboxes.
	SandboxCount = 4
	// sandboxRest is the time in which what a killed worker has started can end.
	sandboxRest = 2 * time.Second
	// JobWait is the time that a job waits for a sandbox.
	JobWait = time.Minute
	// brokenFile makes Cleanup fail, as a folder that cannot be removed would.
	brokenFile = "broken"
	// jobFile names the job whose folder it is.
	jobFile = "job"
)

// NewSandboxes returns the sandboxes of the database on this machine. The folders
// belong to both, so their key does, too.
func NewSandboxes(d store.Database, journal *store.Journal) (*Sandboxes, error) {
	dir, err := d.Folder()
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name the sandboxes: %w", err)
	}
	b := &Sandboxes{journal: journal, dir: dir}
	name := fnv.New64a()
	_, _ = fmt.Fprint(name, host, "\x00", b.dir)
	b.pool = &lock.Pool{
		Key: fmt.Sprintf("sandbox:%x", name.Sum64()), Size: SandboxCount, Quarantine: sandboxRest,
		Init: b.prepare, Cleanup: b.clean,
	}
	if err := os.MkdirAll(b.dir, 0o750); err != nil {
		return nil, fmt.Errorf("open the sandboxes: %w", err)
	}
	return b, nil
}

func (b *Sandboxes) folder(number int) string { return filepath.Join(b.dir, strconv.Itoa(number)) }

// prepare is Init of the pool. It fails if the folder of another job is there.
func (b *Sandboxes) prepare(ctx context.Context, s *lock.Slot) error {
	b.journal.Write(ctx, s.Number(), "init")
	folder := b.folder(s.Number())
	if err := os.Mkdir(folder, 0o750); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, jobFile), fmt.Appendf(nil, "job %d", store.JobOf(ctx)), 0o600)
}

// clean is Cleanup of the pool. It may meet the folder of a worker that was
// killed, or none.
func (b *Sandboxes) clean(ctx context.Context, s *lock.Slot) error {
	folder := b.folder(s.Number())
	if _, err := os.Stat(filepath.Join(folder, brokenFile)); err == nil {
		b.journal.Write(ctx, s.Number(), "clean_fails")
		return fmt.Errorf("the file %q cannot be removed", brokenFile)
	}
	job, err := os.ReadFile(filepath.Join(folder, jobFile))
	switch left := s.Left(); {
	case errors.Is(err, fs.ErrNotExist):
		b.journal.Write(ctx, s.Number(), "clean_none")
	case left != nil && string(job) != fmt.Sprintf("job %d", store.JobOf(ctx)):
		b.journal.Write(ctx, s.Number(), "clean_left", "job", strings.TrimPrefix(string(job), "job "), "by", left.By.String(), "why", left.Why)
	default:
		b.journal.Write(ctx, s.Number(), "clean")
	}
	return os.RemoveAll(folder)
}

// The ways in which a job ends.
const (
	EndsWell   = "well"
	EndsBroken = "broken" // leaves a folder that cannot be cleaned
	EndsKilled = "killed" // kills its own process, as kill -9
)

// Start starts a job in the background, which outlives the request.
func (b *Sandboxes) Start(ctx *mega.Ctx, seconds int, end string) (job int64, err error) {
	if job, err = b.journal.Begin(ctx); err != nil {
		return 0, err
	}
	ctx.WithContext(store.WithJob(ctx, job)).Go("sandbox job", func(ctx *mega.Ctx) error { return b.run(ctx, job, seconds, end) })
	return job, nil
}

// run has the job done in a sandbox, and writes how it ended. A killed process
// writes nothing.
func (b *Sandboxes) run(ctx *mega.Ctx, job int64, seconds int, end string) error {
	err := ctx.Lock.WithSlot(b.pool, func(ctx *mega.Ctx, s *lock.Slot) error { return b.do(ctx, s, seconds, end) },
		lock.Label(fmt.Sprintf("job %d", job)), lock.Wait(JobWait))
	switch {
	case errors.Is(err, errNoWorker):
		b.journal.Write(ctx, store.NoSandbox, "no_worker")
		return err
	case err != nil:
		b.journal.Write(ctx, store.NoSandbox, "failed", "error", err.Error())
		return err
	}
	b.journal.Write(ctx, store.NoSandbox, "done")
	return nil
}

func (b *Sandboxes) do(ctx *mega.Ctx, s *lock.Slot, seconds int, end string) error {
	b.journal.Write(ctx, s.Number(), "works", "seconds", seconds)
	if err := os.WriteFile(filepath.Join(b.folder(s.Number()), "result"), []byte("42\n"), 0o600); err != nil {
		return err
	}
	select {
	case <-time.After(time.Duration(seconds) * time.Second):
	case <-ctx.Done(): // the slot was lost
		return context.Cause(ctx)
	}
	switch end {
	case EndsBroken:
		b.journal.Write(ctx, s.Number(), "breaks")
		return os.WriteFile(filepath.Join(b.folder(s.Number()), brokenFile), nil, 0o600)
	case EndsKilled:
		return b.kill(ctx, s)
	}
	return nil
}

var errNoWorker = errors.New("only a worker is killed; start the shop with serve --workers 4")

// kill ends this process as kill -9 does, if a supervisor replaces it.
func (b *Sandboxes) kill(ctx *mega.Ctx, s *lock.Slot) error {
	state, err := ctx.Lock.Inspect(b.pool.Key)
	if err != nil {
		return err
	}
	for _, h := range state.Holders {
		if h.Slot == s.Number() && h.Worker == 0 {
			return errNoWorker
		}
	}
	b.journal.Write(ctx, s.Number(), "kills")
	return killSelf()
}

// State returns the state of the pool.
func (b *Sandboxes) State(ctx *mega.Ctx) (lock.State, error) {
	state, err := ctx.Lock.Inspect(b.pool.Key)
	if err == nil && state.Slots == nil { // nobody has used the pool for a while
		state = unusedPool(state)
	}
	return state, err
}

// unusedPool is the state of a pool of which the backend knows nothing.
func unusedPool(s lock.State) lock.State {
	s.Size = SandboxCount
	for i := range SandboxCount {
		s.Slots = append(s.Slots, lock.SlotState{Number: i, Status: lock.SlotDirty, Reason: lock.LeftUnknown})
	}
	return s
}

// Free takes a sandbox from its job by force. The next holder cleans it. With a fence
// other than 0 it spares a later job. It returns the number of jobs that lost their
// sandbox.
func (b *Sandboxes) Free(ctx *mega.Ctx, number int, fence uint64) (int, error) {
	only := lock.OnlySlot(number)
	if fence != 0 {
		state, err := ctx.Lock.Inspect(b.pool.Key)
		if err != nil || !slices.ContainsFunc(state.Holders, func(h lock.Holding) bool { return h.Slot == number && h.Fence == fence }) {
			return 0, err
		}
		only = lock.OnlyFence(fence) // a fence stays in its slot
	}
	return ctx.Lock.ForceRelease(b.pool.Key, "freed on the page of sandboxes", only)
}

// Heal repairs the folder of a withdrawn sandbox and puts it back into
// circulation. Nobody uses a withdrawn one.
func (b *Sandboxes) Heal(ctx *mega.Ctx, number int) error {
	if err := os.Remove(filepath.Join(b.folder(number), brokenFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return ctx.Lock.Heal(b.pool.Key, number, "repaired on the page of sandboxes")
}
