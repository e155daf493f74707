package refusal

import (
	"errors"
	"testing"
)

// The texts of refusals are tested against real servers in boot. Here are errors
// that may pass by themselves.
func TestErrorsThatMayPassAreNoRefusals(t *testing.T) {
	for _, text := range []string{
		"dial tcp 127.0.0.1:6379: connect: connection refused",
		"dial tcp: lookup redis on 10.0.0.2:53: no such host",
		"read: connection reset by peer",
		"EOF",
		"context deadline exceeded",
		"LOADING Redis is loading the dataset in memory",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"CLUSTERDOWN The cluster is down",
		"READONLY You can't write against a read only replica.",
		"ERR max number of clients reached",
		"tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026-01-01T00:00:00Z is before 2026-01-02T00:00:00Z",
		"remote error: tls: internal error",
		"nats: no servers available for connection",
		"nats: maximum connections exceeded",
		"redis: all sentinels specified in configuration are unreachable: redis: nil",
		"redis: all sentinels specified in configuration are unreachable: ERR unknown command 'sentinel'\ndial tcp 127.0.0.1:26379: connect: connection refused",
	} {
		if kind := Of(errors.New(text)); kind != None {
			t.Errorf("%s: kind %d, want none", text, kind)
		}
	}
}

func TestAllSentinelsThatRefuseAreARefusal(t *testing.T) {
	err := errors.New("redis: all sentinels specified in configuration are unreachable: ERR unknown command 'sentinel'\nNOAUTH Authentication required.") //nolint:revive // as the client words it
	if Of(err) == None {
		t.Errorf("%v: no refusal", err)
	}
}
