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

// Servers word the refusal of a script's command differently.
func TestRefusalsInsideScriptsAreRecognised(t *testing.T) {
	for text, want := range map[string]Kind{
		"ERR Unknown Redis command called from script: 'zmscore'":                                           Disabled, // Redis 7 and 8
		"@user_script: 2: Unknown Redis command called from Lua script: 'zmscore'":                          Disabled, // Redis 6
		"ERR Unknown command called from script: 'zmscore'":                                                 Disabled, // Valkey 8.1 and 9
		"ERR Unknown Redict command called from script: 'zmscore'":                                          Disabled,
		"@user_script: 1: The user executing the script can't run this command or subcommand":               Login, // Redis 6 and 7.0
		"ERR ACL failure in script: User bob has no permissions to run the 'publish' command script: on 1.": Login, // Redis 8, Valkey
		"ERR Wrong number of args calling Redis command from script":                                        None,
		"ERR Wrong number of args calling command from script":                                              None,
	} {
		if kind := Of(errors.New(text)); kind != want {
			t.Errorf("%s: kind %d, want %d", text, kind, want)
		}
	}
}

func TestAllSentinelsThatRefuseAreARefusal(t *testing.T) {
	err := errors.New("redis: all sentinels specified in configuration are unreachable: ERR unknown command 'sentinel'\nNOAUTH Authentication required.") //nolint:revive // as the client words it
	if Of(err) == None {
		t.Errorf("%v: no refusal", err)
	}
}
