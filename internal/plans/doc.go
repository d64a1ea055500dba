// Package plans holds the plans of our statements on large tables: tests only.
//
// Every statement of the generated packages is planned on tables of a million rows, as a prepared
// statement with a generic plan and with one for sample values. None may walk through a large table,
// but for those that are named with a reason. The plans of the hot ones, which run all the time, are
// kept in testdata, one directory for each major version of Postgres, so that a change of a statement
// shows what it does to its plan. The same statements are planned on tables that were never analyzed,
// and those that name many rows are run there: without statistics, and with a plan from the time when
// the table was small, they must go by indexes too. After a change:
//
//	go test ./internal/plans -update
package plans
