package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/lock"
)

// Sandboxes run jobs in numbered folders, one job in each at a time.
type Sandboxes struct {
	journal *Journal
	dir     string
	pool    *lock.Pool
}

const (
	sandboxCount = 4
	// sandboxRest is the time in which what a killed worker has started can end.
	sandboxRest = 2 * time.Second
	// jobWait is the time that a job waits for a sandbox.
	jobWait = time.Minute
	// brokenFile makes Cleanup fail, as a folder that cannot be removed would.
	brokenFile = "broken"
	// jobFile names the job whose folder it is.
	jobFile = "job"
)

// NewSandboxes returns the sandboxes beside the database. The folders belong to
// this machine and this database, so their key does, too.
func NewSandboxes(d Database, journal *Journal) (*Sandboxes, error) {
	file, err := d.file()
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name the sandboxes: %w", err)
	}
	b := &Sandboxes{journal: journal, dir: file + ".sandboxes"}
	name := fnv.New64a()
	_, _ = fmt.Fprint(name, host, "\x00", b.dir)
	b.pool = &lock.Pool{
		Key: fmt.Sprintf("sandbox:%x", name.Sum64()), Size: sandboxCount, Quarantine: sandboxRest,
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
	b.journal.Write(ctx, s.Number(), "Init: makes the folder")
	folder := b.folder(s.Number())
	if err := os.Mkdir(folder, 0o750); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, jobFile), fmt.Appendf(nil, "job %d", jobOf(ctx)), 0o600)
}

// clean is Cleanup of the pool. It may meet the folder of a worker that was
// killed, or none.
func (b *Sandboxes) clean(ctx context.Context, s *lock.Slot) error {
	folder := b.folder(s.Number())
	job, err := os.ReadFile(filepath.Join(folder, jobFile))
	switch left := s.Left(); {
	case errors.Is(err, fs.ErrNotExist):
		b.journal.Write(ctx, s.Number(), "Cleanup: finds no job in the folder")
	case left != nil && string(job) != fmt.Sprintf("job %d", jobOf(ctx)):
		b.journal.Write(ctx, s.Number(), fmt.Sprintf("Cleanup: removes the folder of %s, left by %s (%s)", job, left.By, left.Why))
	default:
		b.journal.Write(ctx, s.Number(), "Cleanup: removes the folder")
	}
	if _, err := os.Stat(filepath.Join(folder, brokenFile)); err == nil {
		return fmt.Errorf("the file %q cannot be removed", brokenFile)
	}
	return os.RemoveAll(folder)
}

// The ways in which a job ends.
const (
	endsWell   = "well"
	endsBroken = "broken" // leaves a folder that cannot be cleaned
	endsKilled = "killed" // kills its own process, as kill -9
)

// JobInput describes a job.
type JobInput struct {
	Seconds int    `json:"seconds"`
	End     string `json:"end"`
}

// maxSeconds bounds the time of a job.
const maxSeconds = 120

// Validate reports invalid fields.
func (in *JobInput) Validate() error {
	wrong := mega.FieldErrors{}
	if in.Seconds < 0 || in.Seconds > maxSeconds {
		wrong["seconds"] = fmt.Sprintf("has to be 0 to %d", maxSeconds)
	}
	if in.End != endsWell && in.End != endsBroken && in.End != endsKilled {
		wrong["end"] = fmt.Sprintf("has to be %s, %s or %s", endsWell, endsBroken, endsKilled)
	}
	if len(wrong) > 0 {
		return wrong
	}
	return nil
}

// Start starts a job in the background, which outlives the request.
func (b *Sandboxes) Start(ctx *mega.Ctx) error {
	in := JobInput{End: endsWell}
	if err := ctx.Bind(&in); err != nil {
		return err
	}
	job, err := b.journal.Begin(ctx)
	if err != nil {
		return err
	}
	ctx.WithContext(withJob(ctx, job)).Go("sandbox job", func(ctx *mega.Ctx) error { return b.run(ctx, job, in) })
	if ctx.WantsJSON() {
		return ctx.JSON(http.StatusAccepted, map[string]int64{"job": job})
	}
	return ctx.Redirect(http.StatusSeeOther, fmt.Sprintf("/sandboxes?started=%d", job))
}

// run has the job done in a sandbox, and writes how it ended. A killed process
// writes nothing.
func (b *Sandboxes) run(ctx *mega.Ctx, job int64, in JobInput) error {
	err := ctx.Lock.WithSlot(b.pool, func(ctx *mega.Ctx, s *lock.Slot) error { return b.do(ctx, s, in) },
		lock.Label(fmt.Sprintf("job %d", job)), lock.Wait(jobWait))
	if err != nil {
		b.journal.Write(ctx, noSandbox, "failed: "+err.Error())
		return err
	}
	b.journal.Write(ctx, noSandbox, "done")
	return nil
}

func (b *Sandboxes) do(ctx *mega.Ctx, s *lock.Slot, in JobInput) error {
	b.journal.Write(ctx, s.Number(), fmt.Sprintf("works for %d s", in.Seconds))
	if err := os.WriteFile(filepath.Join(b.folder(s.Number()), "result"), []byte("42\n"), 0o600); err != nil {
		return err
	}
	select {
	case <-time.After(time.Duration(in.Seconds) * time.Second):
	case <-ctx.Done(): // the slot was lost
		return context.Cause(ctx)
	}
	switch in.End {
	case endsBroken:
		b.journal.Write(ctx, s.Number(), "leaves a folder that cannot be cleaned")
		return os.WriteFile(filepath.Join(b.folder(s.Number()), brokenFile), nil, 0o600)
	case endsKilled:
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
	b.journal.Write(ctx, s.Number(), "kills its worker")
	process, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	if err := process.Kill(); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// Free takes a sandbox from its job by force. The next holder cleans it.
func (b *Sandboxes) Free(ctx *mega.Ctx) error {
	number, err := sandboxNumber(ctx)
	if err != nil {
		return err
	}
	if _, err := ctx.Lock.ForceRelease(b.pool.Key, "freed on the page of sandboxes", lock.OnlySlot(number)); err != nil {
		return err
	}
	return b.changed(ctx, "freed")
}

// Heal repairs the folder of a withdrawn sandbox and puts it back into
// circulation. Nobody uses a withdrawn one.
func (b *Sandboxes) Heal(ctx *mega.Ctx) error {
	number, err := sandboxNumber(ctx)
	if err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(b.folder(number), brokenFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := ctx.Lock.Heal(b.pool.Key, number, "repaired on the page of sandboxes"); err != nil {
		return err
	}
	return b.changed(ctx, "healed")
}

func (b *Sandboxes) changed(ctx *mega.Ctx, how string) error {
	if ctx.WantsJSON() {
		return nil // without an error and without a body: 204
	}
	return ctx.Redirect(http.StatusSeeOther, "/sandboxes?done="+how)
}

var errNoSandbox = mega.Error(http.StatusNotFound, "sandbox.not_found", "There is no such sandbox.")

func sandboxNumber(ctx *mega.Ctx) (int, error) {
	number, err := strconv.Atoi(ctx.Param("number"))
	if err != nil || number < 0 || number >= sandboxCount {
		return 0, errNoSandbox
	}
	return number, nil
}
