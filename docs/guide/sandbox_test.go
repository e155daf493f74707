package guide_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock"
)

// What 07-locks-in-practice.md shows of numbered sandboxes.

// judge runs submissions in numbered folders of this machine.
type judge struct {
	locks *lock.Locker
	dir   string
	size  int // number of folders
	run   func(ctx context.Context, folder string) error
}

func (j *judge) folder(number int) string { return filepath.Join(j.dir, strconv.Itoa(number)) }

func (j *judge) judgeByHand(ctx context.Context) error {
	return j.locks.With(ctx, "sandbox", func(ctx context.Context) error {
		lease, _ := lock.LeaseFrom(ctx)
		folder := j.folder(lease.Slot())
		if err := os.Mkdir(folder, 0o700); err != nil {
			return err
		}
		defer os.RemoveAll(folder)
		return j.run(ctx, folder)
	}, lock.Slots(j.size))
}

func (j *judge) sandboxes(host string) *lock.Pool {
	return &lock.Pool{
		Key:  "sandbox:" + host, // the folders belong to this machine
		Size: j.size,
		Init: func(_ context.Context, s *lock.Slot) error { return os.Mkdir(j.folder(s.Number()), 0o700) },
		Cleanup: func(_ context.Context, s *lock.Slot) error {
			if left := s.Left(); left != nil {
				slog.Warn("sandbox was left", "number", s.Number(), "why", left.Why, "by", left.By)
			}
			return os.RemoveAll(j.folder(s.Number()))
		},
		Quarantine: time.Second, // the children of a crashed judge end meanwhile
	}
}

func (j *judge) judge(ctx context.Context, boxes *lock.Pool) error {
	return j.locks.WithSlot(ctx, boxes, func(ctx context.Context, s *lock.Slot) error {
		return j.run(ctx, j.folder(s.Number()))
	})
}

// newJudge returns a judge of one sandbox in dir, whose locks are at the server.
func newJudge(t *testing.T, server, dir string, run func(context.Context, string) error) *judge {
	t.Helper()
	d, err := redis.OpenLock(t.Context(), redis.Config{URL: server})
	if err != nil {
		t.Fatal(err)
	}
	locks, err := lock.New(d, lock.Config{TTL: time.Second, Wait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	return &judge{locks, dir, 1, run}
}

// The variables of a judge that is a process of its own.
const (
	judgeWay    = "GUIDE_JUDGE"
	judgeServer = "GUIDE_JUDGE_SERVER"
	judgeDir    = "GUIDE_JUDGE_DIR"
)

func (j *judge) as(ctx context.Context, way string) error {
	if way == "by hand" {
		return j.judgeByHand(ctx)
	}
	return j.judge(ctx, j.sandboxes("node-1"))
}

// A judge is killed while it judges, and the next one needs its sandbox.
func TestAKilledJudgeSpoilsItsSandboxByHandOnly(t *testing.T) {
	if way := os.Getenv(judgeWay); way != "" {
		beJudge(t, way)
		return
	}
	server := redistest.Start(t, redistest.Options{}).URL()
	for way, want := range map[string]error{"by hand": fs.ErrExist, "with a pool": nil} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			killJudge(t, way, server, dir)
			found := ""
			next := newJudge(t, server, dir, func(_ context.Context, folder string) error {
				if _, err := os.Stat(filepath.Join(folder, "submission")); err == nil {
					found = "the submission of the killed judge is in the sandbox"
				}
				return nil
			})
			if err := next.as(t.Context(), way); !errors.Is(err, want) || found != "" {
				t.Errorf("the next judge: %v %s; the page says %v", err, found, want)
			}
		})
	}
}

// beJudge judges until the process is killed.
func beJudge(t *testing.T, way string) {
	t.Helper()
	j := newJudge(t, os.Getenv(judgeServer), os.Getenv(judgeDir), func(ctx context.Context, folder string) error {
		if err := os.WriteFile(filepath.Join(folder, "submission"), []byte("42"), 0o600); err != nil {
			return err
		}
		fmt.Println("judging")
		<-ctx.Done()
		return ctx.Err()
	})
	t.Error(j.as(t.Context(), way))
}

// killJudge starts a judge and kills it while it judges.
func killJudge(t *testing.T, way, server, dir string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestAKilledJudgeSpoilsItsSandboxByHandOnly$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), judgeWay+"="+way, judgeServer+"="+server, judgeDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, judging := bufio.NewScanner(out), false
	for !judging && lines.Scan() {
		judging = lines.Text() == "judging"
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // killed
	if !judging {
		t.Fatal("the judge ended before it judged")
	}
}
