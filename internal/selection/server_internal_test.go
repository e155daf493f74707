package selection

import (
	"errors"
	"strings"
	"testing"
)

// An example with another host would lead away from a server that works.
func TestAWrongDatabaseIsCorrectedOnTheSameServer(t *testing.T) {
	c, d := pinnedBy(t, false, "MEGA_CACHE_MAIN_URL=redis://cache.internal:6380/99")
	got := strings.Join(lockServer(c, d.Lock).repair(c, errors.New("ERR DB index is out of range")), ": ")
	if !strings.Contains(got, "the number 0 in cache.main.url") || strings.Contains(got, "localhost") {
		t.Errorf("the actions are %q", got)
	}
}

// A program that follows Sentinels cannot get nearer to the master.
func TestSentinelsThatNameAReplicaAreToBeRepaired(t *testing.T) {
	c, d := pinnedBy(t, false, "MEGA_CACHE_MAIN_URL=redis-sentinel://a,b/master")
	const replica = "the server is a replica and takes no writes: "
	for cause, want := range map[string]string{
		replica + "a Sentinel names it as the master; compare SENTINEL GET-MASTER-ADDR-BY-NAME of all sentinels": "Repair the Sentinels",
		replica + "connect to its master, or by redis-sentinel://":                                               "Use its master",
	} {
		if got := lockServer(c, d.Lock).repair(c, errors.New(cause)); !strings.HasPrefix(got[0], want) {
			t.Errorf("%s: the actions are %q, want %q first", cause, got, want)
		}
	}
}
