// Package enginetest tests the guards on real engines: SQLite, PostgreSQL,
// MariaDB and Redis. It is a module of its own, so that a program that imports
// mega does not depend on database drivers.
package enginetest
