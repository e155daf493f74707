-- What happened to the lock of the page of locks.

-- +goose Up
CREATE TABLE trail (
	id     BIGINT           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	at     BIGINT           NOT NULL,
	pid    BIGINT           NOT NULL,
	what   TEXT             NOT NULL,
	fence  BIGINT           NOT NULL,
	millis DOUBLE PRECISION NOT NULL,
	text   TEXT             NOT NULL
);
