-- A sale has a number and keeps the name of its product, which may be renamed or
-- removed later. An event of the journal is a key and values, so that a page shows
-- it in the language of its reader.

-- +goose Up
CREATE TABLE sales (
	id       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	product  BIGINT NOT NULL,
	name     TEXT   NOT NULL,
	quantity BIGINT NOT NULL CHECK (quantity > 0),
	at       BIGINT NOT NULL
);

INSERT INTO sales (product, name, quantity, at)
SELECT product, COALESCE((SELECT name FROM products WHERE id = product), ''), quantity, at FROM ledger ORDER BY at;

DROP TABLE ledger;
DROP TABLE journal;

CREATE TABLE journal (
	id      BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	job     BIGINT  NOT NULL,
	sandbox INTEGER NOT NULL,
	pid     BIGINT  NOT NULL,
	at      BIGINT  NOT NULL,
	event   TEXT    NOT NULL,
	details TEXT    NOT NULL
);
