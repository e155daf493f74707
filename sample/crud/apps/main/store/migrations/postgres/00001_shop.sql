-- The tables that the shop began with.

-- +goose Up
CREATE TABLE IF NOT EXISTS products (
	id    BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name  TEXT   NOT NULL,
	price BIGINT NOT NULL CHECK (price >= 0),
	stock BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS ledger (
	product  BIGINT NOT NULL,
	quantity BIGINT NOT NULL,
	at       BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS journal (
	id      BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	job     BIGINT  NOT NULL,
	sandbox INTEGER NOT NULL,
	pid     BIGINT  NOT NULL,
	at      BIGINT  NOT NULL,
	text    TEXT    NOT NULL
);

-- The table of lock/guard: guard.Schema(guard.Postgres).
CREATE TABLE IF NOT EXISTS mega_fences (
	lock_key TEXT COLLATE "C" NOT NULL,
	slot INTEGER NOT NULL,
	fence BIGINT NOT NULL,
	PRIMARY KEY (lock_key, slot)
);
