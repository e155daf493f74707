-- An edit names the version that it has seen, and is refused if there is a later
-- one. The name in lower case is for the search, which the databases do not fold in
-- the same way.

-- +goose Up
ALTER TABLE products ADD COLUMN version BIGINT NOT NULL DEFAULT 1;
ALTER TABLE products ADD COLUMN folded TEXT NOT NULL DEFAULT '';
UPDATE products SET folded = lower(name);
CREATE INDEX products_by_name ON products (folded, id);
