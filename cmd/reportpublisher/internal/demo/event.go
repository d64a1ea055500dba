package demo

// What a worker tells the director, one JSON object a line. The director tells a worker one thing
// only, a line end: go on.
const (
	eventPaused      = "paused"      // waits for a line end
	eventWaiting     = "waiting"     // another owner has the lease
	eventAcquired    = "acquired"    // the lease
	eventEstablished = "established" // its fence at the store; and how the report stands
	eventComputed    = "computed"    // its own report
	eventChecked     = "checked"     // that it still holds the lease
	eventResult      = "result"      // what the store answered to the write
	eventLost        = "lost"        // the lease; what it computed is thrown away
	eventDiagnostic  = "diagnostic"  // for whoever looks after the workers
	eventReleased    = "released"    // the lease, by its id
	eventFailed      = "failed"      // something that is no part of the story
)

// Where a worker can be told to pause.
const (
	pauseAcquire = "acquire"
	pauseWrite   = "write"
	pauseRelease = "release"
)

// An event is one line of a worker. Which fields are set depends on the kind.
type event struct {
	Kind        string `json:"event"`
	At          string `json:"at,omitempty"`
	Owner       string `json:"owner,omitempty"`
	Lease       string `json:"lease,omitempty"`
	Fence       int64  `json:"fence,omitempty"`
	Version     int64  `json:"version,omitempty"`
	Files       int    `json:"files,omitempty"`
	Rows        int    `json:"rows,omitempty"`
	Total       string `json:"total,omitempty"`
	Hash        string `json:"sha256,omitempty"`
	RemainingMS int64  `json:"remaining_ms,omitempty"`
	Result      string `json:"result,omitempty"`
	Text        string `json:"text,omitempty"`
}

// What a write can come to.
const (
	resultApplied    = "applied"
	resultStaleOwner = "stale_owner"
	resultConflict   = "conflict"
)
