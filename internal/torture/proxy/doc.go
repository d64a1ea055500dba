// Package proxy stands between a process and its Postgres and makes the network lie: it keeps
// requests back, throws answers away after the commit, holds statements until they are late,
// repeats them, goes silent, and delivers what was queued meanwhile in another order.
//
// It reads as much of the protocol as it takes to know which statement a message executes and
// whether the answer says that it was committed.
package proxy
