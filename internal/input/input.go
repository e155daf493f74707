// Package input decodes the bodies of requests, JSON and forms, into structs, and
// describes what is wrong with them by field. Its errors are answers of package
// request.
package input

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/megaframework/mega/internal/request"
)

// Read decodes the body of r into the struct that v points to. Without a body and its
// Content-Type it does nothing. Lenient accepts JSON with unknown fields and duplicate members. own
// returns the fields in the error of a value's UnmarshalJSON, or nil.
func Read(r *http.Request, v any, lenient bool, own func(error) request.Fields) error {
	header := r.Header.Get("Content-Type")
	if header == "" && r.ContentLength == 0 {
		return nil
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return request.Refuse(http.StatusUnsupportedMediaType, "request.unsupported_media_type", nil, "problem.request.encoding", "encoding", encoding)
	}
	switch t := request.MediaType(header); {
	case request.IsJSON(t):
		return readJSON(r.Body, v, lenient, own)
	case t == "application/x-www-form-urlencoded" || t == "multipart/form-data":
		return readForm(r, t, v)
	}
	return request.Refuse(http.StatusUnsupportedMediaType, "request.unsupported_media_type", nil, "problem.request.media_type", "type", header)
}

// badJSON returns the answer for a body that cannot be read or decoded.
func badJSON(err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return request.TooLarge(tooLarge)
	case errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return request.BadBody("bad_json", err)
}
