package request

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// WantsJSON reports whether the answer should be JSON: the request's body is
// JSON, or its Accept header prefers JSON to HTML.
func WantsJSON(r *http.Request) bool {
	if IsJSON(MediaType(r.Header.Get("Content-Type"))) {
		return true
	}
	var json, page float64
	for _, header := range r.Header.Values("Accept") {
		for item := range strings.SplitSeq(header, ",") {
			t, q := weighted(item)
			switch {
			case IsJSON(t):
				json = max(json, q)
			case t == "text/html" || t == "application/xhtml+xml":
				page = max(page, q)
			}
		}
	}
	return json > 0 && json >= page
}

// IsJSON reports whether a bare media type is JSON.
func IsJSON(mediaType string) bool {
	return mediaType == "application/json" || strings.HasPrefix(mediaType, "application/") && strings.HasSuffix(mediaType, "+json")
}

// MediaType returns the bare type in lower case, or "" if there is none.
func MediaType(header string) string {
	t, _, err := mime.ParseMediaType(header)
	if err != nil {
		return ""
	}
	return t
}

// weighted splits one item of an Accept header into its type and weight.
func weighted(item string) (string, float64) {
	t, params, err := mime.ParseMediaType(item)
	if err != nil {
		return "", 0
	}
	q, err := strconv.ParseFloat(params["q"], 64)
	if err != nil {
		q = 1
	}
	return t, q
}
