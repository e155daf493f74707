package megactx

import (
	"io"
	"net/http"
)

// response watches what is answered. It lets [http.ResponseController] through
// to the connection.
type response struct {
	http.ResponseWriter
	record *record
}

// WriteHeader notes the status. An informational one is not an answer yet.
func (w *response) WriteHeader(status int) {
	if !w.record.wrote() && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.record.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(b []byte) (int, error) {
	w.begin()
	n, err := w.ResponseWriter.Write(b)
	w.record.bytes += int64(n)
	return n, err
}

// ReadFrom keeps sendfile in use for files.
func (w *response) ReadFrom(src io.Reader) (int64, error) {
	w.begin()
	n, err := io.Copy(w.ResponseWriter, src)
	w.record.bytes += n
	return n, err
}

// Flush sends what was written so far, where the connection can.
func (w *response) Flush() {
	w.begin()
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap is for [http.ResponseController].
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) begin() {
	if !w.record.wrote() {
		w.record.status = http.StatusOK
	}
}
