-- What happened to the lock of the page of locks.

-- +goose Up
CREATE TABLE trail (
	id     INTEGER PRIMARY KEY AUTOINCREMENT,
	at     INTEGER NOT NULL,
	pid    INTEGER NOT NULL,
	what   TEXT    NOT NULL,
	fence  INTEGER NOT NULL,
	millis REAL    NOT NULL,
	text   TEXT    NOT NULL
) STRICT;
