package redis

import (
	"errors"
	"strings"
	"testing"

	"github.com/megaframework/mega/lock/driver"
)

// The descriptions are from INFO of Redis 8.0, Valkey 8.1 and 9.1, and Redict 7.3.
func TestASentinelOfEachKindOfServerIsRecognised(t *testing.T) {
	for name, info := range map[string]string{
		"Redis":  "# Server\r\nredis_version:8.0.2\r\nredis_mode:sentinel\r\n",
		"Valkey": "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\nserver_mode:sentinel\r\n",
		"Redict": "# Server\r\nredict_version:7.3.6\r\nredict_mode:sentinel\r\nredis_version:7.2.4\r\n",
	} {
		if err := new(look).fits(parseInfo(info), false); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "redis-sentinel://") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := new(look).fits(parseInfo("server_mode:standalone\r\ncluster_enabled:0\r\nrole:master\r\n"), false); err != nil {
		t.Errorf("a single server: %v", err)
	}
}

// The description is from INFO of KeyDB 6.3.4.
func TestAnActiveReplicaIsAWarning(t *testing.T) {
	l := look{losses: lossesOfLocks()}
	l.judge(parseInfo("redis_version:6.3.4\r\nrole:active-replica\r\nconnected_masters:1\r\nconnected_slaves:0\r\n"))
	if len(l.warnings) != 1 || !strings.Contains(l.warnings[0], "both may grant the same lock") {
		t.Errorf("warnings %q", l.warnings)
	}
}
