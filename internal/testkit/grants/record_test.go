//go:build linux || darwin

package grants

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// record is what a client knows of one call. A later record of a client with the
// same ID replaces the earlier one, except for its times.
type record struct {
	ID   int64
	Key  int64 // an index
	At   int64 // of the grant on the backend's clock in microseconds; 0 if the outcome is unknown
	From int64 // the machine's clock in nanoseconds before the call, and
	To   int64 // after it
	// Cost is the number of granted units. The backend has Least to Most of them:
	// a Settle has an unknown outcome until it has returned.
	Cost, Least, Most int64
}

var recordSize = binary.Size(record{})

// journal is the file of one client. Each record is written before the client
// does anything else, so that kill -9 loses no more than one record per caller.
type journal struct {
	file *os.File
	ids  atomic.Int64
}

func (j *journal) write(r record) error {
	b, err := binary.Append(nil, binary.LittleEndian, r)
	if err == nil {
		_, err = j.file.Write(b)
	}
	return err
}

// written returns the number of records in all files of a folder so far.
func written(t *testing.T, dir string) (n int) {
	t.Helper()
	files, err := os.ReadDir(dir)
	must(t, err)
	for _, f := range files {
		info, err := f.Info()
		must(t, err)
		n += int(info.Size()) / recordSize
	}
	return n
}

// readAll returns the records of each client, one for each ID.
func readAll(t *testing.T, dir string) (clients [][]record) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		records := make([]record, len(text)/recordSize) // a killed client may have left a part of one
		must(t, binary.Read(bytes.NewReader(text), binary.LittleEndian, records))
		var client []record
		index := map[int64]int{}
		for _, r := range records {
			if i, known := index[r.ID]; known {
				client[i].Least, client[i].Most = r.Least, r.Most
				continue
			}
			index[r.ID] = len(client)
			client = append(client, r)
		}
		clients = append(clients, client)
	}
	return clients
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func micros(us int64) time.Time { return time.UnixMicro(us) }
