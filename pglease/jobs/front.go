package jobs

import (
	"sync"
	"time"

	"github.com/pglease/pglease/pglease/jobs/internal/jobsdb"
)

const (
	// lookBack is how long claims may begin at the front instead of at the beginning; longer where a
	// look from the beginning takes long, so that no more than one lookShare of the time goes there.
	lookBack  = 50 * time.Millisecond
	lookShare = 10

	priorities = MaxPriority - MinPriority + 1

	// maxFronts bounds what is remembered of a process that claims from ever new queues.
	maxFronts = 1000
)

// fronts tells where in the index of ready jobs the next claim begins. Whatever was claimed stays in
// that index until the next vacuum, right where the next claim looks: with a thousand claims a
// second that is soon more work than the claim itself, and while a long transaction keeps the vacuum
// away it only grows. So a claim begins where the one before it found its first jobs, for lookBack
// at most. What lies before that, because its transaction was
// open when it was passed, or another held its row and gave it up, is found by the next claim that
// begins at the beginning; one that found too little is followed by such a one at once.
//
// What a client itself puts before the front makes it forget the front.
type fronts struct {
	mu        sync.Mutex
	of        map[string]front
	forgotten int // counts; what was looked for before the last time is of no use
}

type front struct {
	looked time.Time     // when a claim last began at the beginning
	holds  time.Duration // until the next one does
	since  [priorities]time.Time
}

// A look is one search for jobs. The zero since of a priority is the beginning.
type look struct {
	front
	queue     string
	whole     bool // from the beginning
	forgotten int
}

func (f *fronts) look(queue string) look {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	known, ok := f.of[queue]
	if ok && now.Sub(known.looked) <= known.holds {
		return look{front: known, queue: queue, forgotten: f.forgotten}
	}
	if ok { // one at a time is enough; the others go on at the front
		known.looked, known.holds = now, requestTimeout
		f.of[queue] = known
	}
	return look{front: front{looked: now, holds: lookBack}, queue: queue, whole: true, forgotten: f.forgotten}
}

// found moves the front to where a look for n jobs found them.
func (f *fronts) found(l look, n int, rows []jobsdb.ClaimRow) {
	if len(rows) >= n {
		l.advance(rows)
	}
	if l.whole {
		l.holds = max(lookBack, lookShare*time.Since(l.looked))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	known, ok := f.of[l.queue]
	switch {
	case l.forgotten != f.forgotten:
	case len(rows) < n:
		delete(f.of, l.queue)
	case !l.whole:
		if ok {
			known.since = l.since
			f.of[l.queue] = known
		}
	case f.of == nil, len(f.of) >= maxFronts:
		f.of = map[string]front{l.queue: l.front}
	default:
		f.of[l.queue] = l.front
	}
}

// advance takes the first time to run of each priority. A higher priority without a job has none
// that was due when the others were claimed; lower ones were not looked at.
func (f *front) advance(rows []jobsdb.ClaimRow) {
	least, at := int16(MaxPriority), rows[0].ClaimedAt
	var first [priorities]time.Time
	for _, row := range rows {
		if p := &first[MaxPriority-row.Priority]; p.IsZero() || row.RunAt.Before(*p) {
			*p = row.RunAt
		}
		if least = min(least, row.Priority); row.ClaimedAt.Before(at) {
			at = row.ClaimedAt
		}
	}
	for i := range int(MaxPriority - least + 1) {
		if f.since[i] = first[i]; first[i].IsZero() {
			f.since[i] = at
		}
	}
}

// failed makes the next claim of a queue begin at the beginning: nobody knows how far this look came.
func (f *fronts) failed(l look) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of, l.queue)
}

// forget makes the next claim of each queue begin at the beginning.
func (f *fronts) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.of)
	f.forgotten++
}
