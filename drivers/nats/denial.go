package nats

import (
	"maps"
	"slices"
)

// request is an unconfirmed request.
type request struct {
	id      uint64
	subject string
	late    bool // a PONG has confirmed it, and settle waits for the next one
}

// denial counts the server's reports of refused requests on a subject. A report
// names the subject, and not the request.
type denial struct {
	count int
	err   error // the latest report
}

// refusedRequest is a request that the server has refused.
type refusedRequest struct {
	id  uint64
	err error
}

// refuse records that the server has refused a message on subject. It returns true
// if that was a request: pong returns which one, because the report names only the
// subject, and the other requests on it may have been accepted. Otherwise the
// message was an event or an answer, which refuse counts.
func (l *ledger) refuse(subject string, err error) (isRequest bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pinged.asks(subject) || l.asks(subject) {
		if l.denials == nil {
			l.denials = make(map[string]denial)
		}
		l.denials[subject] = denial{l.denials[subject].count + 1, err}
		return true
	}
	l.trouble.refused++
	l.trouble.err = err
	return false
}

// settle finds the refused requests among those that are confirmed now, and records
// which subjects are denied. The caller holds l.mu.
//
// Permissions may have changed between the requests on a subject: if it was denied
// before them, the later ones were accepted, else the earlier ones. A report may be
// about a request after the PING, and have been recorded before its PONG. So if there
// is such a request, the others on its subject wait for the next PONG, once.
func (l *ledger) settle() (refused []refusedRequest) {
	accepted := map[string]int{} // how many requests on a subject come before its refused ones
	for _, r := range l.pinged.requests {
		if l.isReported(r) && !l.denied[r.subject] {
			accepted[r.subject]++
		}
	}
	for subject := range accepted {
		accepted[subject] -= l.denials[subject].count
	}
	var late []request
	for _, r := range l.pinged.requests {
		switch {
		case !l.isReported(r):
			delete(l.denied, r.subject)
		case !r.late && l.asks(r.subject):
			r.late = true
			late = append(late, r)
		case accepted[r.subject] > 0:
			accepted[r.subject]--
		default:
			refused = append(refused, refusedRequest{r.id, l.denials[r.subject].err})
			l.deny(r.subject)
		}
	}
	if len(late) > 0 {
		l.handed.requests = append(late, l.handed.requests...)
	}
	maps.DeleteFunc(l.denials, func(subject string, _ denial) bool { return !l.asks(subject) })
	return refused
}

// deny records that the latest confirmed request on a subject was refused, which
// uses up a report. The caller holds l.mu.
func (l *ledger) deny(subject string) {
	const most = 1024
	if l.denied == nil || len(l.denied) >= most {
		l.denied = make(map[string]bool)
	}
	l.denied[subject] = true
	d := l.denials[subject]
	d.count--
	l.denials[subject] = d
}

// asks reports whether a request on subject follows those that a PING covers. The
// caller holds l.mu.
func (l *ledger) asks(subject string) bool { return l.handed.asks(subject) || l.written.asks(subject) }

func (p *sequence) asks(subject string) bool {
	return slices.ContainsFunc(p.requests, func(r request) bool { return r.subject == subject })
}

// isReported reports whether the server has refused a request on the subject of r.
// The caller holds l.mu.
func (l *ledger) isReported(r request) bool { return l.denials[r.subject].count > 0 }
