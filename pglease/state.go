package pglease

// State is where a lease is in its life:
//
//	Acquiring -> Held <-> Suspect -> Lost
//	               |         |
//	               +-> Releasing -> Released
//
// A refused acquire never becomes a lease. Releasing becomes Lost where the release was not
// confirmed before the lease ran out.
type State int

const (
	Acquiring State = iota + 1
	Held            // trusted: work may begin
	Suspect         // trusted, but with too little left to begin another unit of work
	Releasing       // given back by its holder, not yet confirmed
	Released        // over: given back
	Lost            // over: another owner may have the resource
)

var stateNames = [...]string{"", "acquiring", "held", "suspect", "releasing", "released", "lost"}

// String returns the state in lower case.
func (s State) String() string {
	if s <= 0 || int(s) >= len(stateNames) {
		return "none"
	}
	return stateNames[s]
}

// Over tells whether the state is final.
func (s State) Over() bool { return s == Released || s == Lost }
