// Package migrationtools holds tests against the migration tools that users have: what "pglease
// migrate print" writes is applied and reverted by the tools themselves, and our migrator shares a
// database with a service that uses golang-migrate. It is a module of its own because of what the
// tools bring along.
package migrationtools
