-- A sale has a number and keeps the name of its product, which may be renamed or
-- removed later. An event of the journal is a key and values, so that a page shows
-- it in the language of its reader.

-- +goose Up
CREATE TABLE sales (
	id       INTEGER PRIMARY KEY AUTOINCREMENT,
	product  INTEGER NOT NULL,
	name     TEXT    NOT NULL,
	quantity INTEGER NOT NULL CHECK (quantity > 0),
	at       INTEGER NOT NULL
) STRICT;

INSERT INTO sales (product, name, quantity, at)
SELECT product, COALESCE((SELECT name FROM products WHERE id = product), ''), quantity, at FROM ledger ORDER BY at;

DROP TABLE ledger;
DROP TABLE journal;

CREATE TABLE journal (
	id      INTEGER PRIMARY KEY AUTOINCREMENT,
	job     INTEGER NOT NULL,
	sandbox INTEGER NOT NULL,
	pid     INTEGER NOT NULL,
	at      INTEGER NOT NULL,
	event   TEXT    NOT NULL,
	details TEXT    NOT NULL
) STRICT;
