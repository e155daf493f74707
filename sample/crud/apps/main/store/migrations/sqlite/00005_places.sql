-- Products are listed in the order of their names with numbers by value: Chair 9 is
-- before Chair 10. A product from before this step gets its place with its next change.

-- +goose Up
ALTER TABLE products ADD COLUMN place TEXT NOT NULL DEFAULT '';
UPDATE products SET place = folded;
DROP INDEX products_by_name;
CREATE INDEX products_by_place ON products (place, id);
