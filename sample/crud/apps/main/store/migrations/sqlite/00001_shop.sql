-- The tables that the shop began with. A database from before these files has some
-- of them.

-- +goose Up
CREATE TABLE IF NOT EXISTS products (
	id    INTEGER PRIMARY KEY AUTOINCREMENT,
	name  TEXT    NOT NULL,
	price INTEGER NOT NULL CHECK (price >= 0),
	stock INTEGER NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS ledger (
	product  INTEGER NOT NULL,
	quantity INTEGER NOT NULL,
	at       INTEGER NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS journal (
	id      INTEGER PRIMARY KEY AUTOINCREMENT,
	job     INTEGER NOT NULL,
	sandbox INTEGER NOT NULL,
	pid     INTEGER NOT NULL,
	at      INTEGER NOT NULL,
	text    TEXT    NOT NULL
) STRICT;

-- The table of lock/guard: guard.Schema(guard.SQLite).
CREATE TABLE IF NOT EXISTS mega_fences (
	lock_key TEXT NOT NULL,
	slot INTEGER NOT NULL,
	fence INTEGER NOT NULL,
	PRIMARY KEY (lock_key, slot)
) WITHOUT ROWID;
