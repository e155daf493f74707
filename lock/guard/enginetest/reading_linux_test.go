package enginetest

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega/lock/guard"
)

// A session that sends rows is not idle, so PostgreSQL's
// idle_in_transaction_session_timeout does not end it. Linux counts the time for which
// the holder takes no data.
func TestAHolderThatIsFrozenWhileItReadsIsEndedByTheServer(t *testing.T) {
	for _, e := range []engine{postgres(t), mariadb(t)} {
		t.Run(e.name, func(t *testing.T) {
			frozen, series := e, ""
			switch e.dialect {
			case guard.Postgres:
				if _, err := e.open(t).ExecContext(t.Context(), "ALTER ROLE mega SET tcp_user_timeout = '1s'"); err != nil {
					t.Fatal(err)
				}
				series = "generate_series(1, 100000)"
			case guard.MySQL:
				frozen.dsn += "?net_write_timeout=1"
				series = "seq_1_to_100000"
			}
			early, late := acquire(t, t.Context(), "reading"), acquire(t, t.Context(), "reading")
			reading, goOn := make(chan struct{}), make(chan struct{})
			var holder sync.WaitGroup
			holder.Go(func() {
				err := guard.Tx(early.Context(), frozen.open(t), e.dialect, func(tx *sql.Tx) error {
					rows, err := tx.QueryContext(early.Context(), "SELECT repeat('x', 1000) FROM "+series)
					close(reading)
					if err != nil {
						return err
					}
					defer func() { _ = rows.Close() }()
					<-goOn // 100 MB are unread
					for rows.Next() {
					}
					return rows.Err()
				})
				if err == nil {
					t.Error("the frozen holder has committed")
				}
			})
			<-reading
			ctx, cancel := context.WithTimeout(late.Context(), 30*time.Second)
			defer cancel()
			if err := e.target(e.open(t)).Save(ctx, "reading", late.Fence(), nil); err != nil {
				t.Errorf("the successor: %v", err)
			}
			close(goOn)
			holder.Wait()
		})
	}
}
