package metrics

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// requestBuckets are the buckets of OpenTelemetry's conventions, which also
// define the names.
var requestBuckets = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}

// The series of requests.
var (
	requestSeconds = Series{
		"http_server_request_duration_seconds", "histogram", []string{"app", "route", "method", "status"},
		"Duration of requests, by app, pattern of the route, method and class of the status.",
	}
	requestsActive = Series{"http_server_active_requests", "gauge", []string{"app"}, "Requests in flight."}
)

// Request is an answered request.
type Request struct {
	App    string
	Route  string // the pattern; empty if no route matched
	Method string
	Status int // 0 without an answer
	Took   time.Duration
}

// Served counts a request.
func (m *Metrics) Served(r Request) {
	m.requests.WithLabelValues(r.App, routeLabel(r.Route), methodLabel(r.Method), statusLabel(r.Status)).Observe(r.Took.Seconds())
}

// App adds an app. Each scrape calls inFlight for its number of requests in
// flight. App must be called once for each app.
func (m *Metrics) App(name string, inFlight func() int) {
	m.registry.MustRegister(gaugeOf(requestsActive, func() float64 { return float64(inFlight()) }, name))
}

// A label must have few values, so a client's arbitrary text is never one of
// them.

func routeLabel(pattern string) string {
	if pattern == "" {
		return "none"
	}
	return strings.ToValidUTF8(pattern, "?")
}

var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
	http.MethodConnect, http.MethodTrace,
}

func methodLabel(method string) string {
	if slices.Contains(methods, method) {
		return method
	}
	return "other"
}

func statusLabel(status int) string {
	if status < 100 || status > 599 {
		return "none"
	}
	return strconv.Itoa(status/100) + "xx"
}
