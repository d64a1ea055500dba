//go:build unix

package demo

import (
	"context"
	"fmt"
	"strings"
)

// w1Files are an older set than w2Files: W1 does not know of the third store.
var (
	w1Files = []string{"harbour.csv", "market.csv"}
	w2Files = []string{"harbour.csv", "market.csv", "station.csv"}
)

// A director runs the two workers through the story. The numbers at its methods are the steps of
// "The Complete Report Handoff": what happens between the grant to one worker and the release by
// the other.
type director struct {
	Options
	*stage
	story    *Story
	w1, w2   *child
	computed map[string]event // what each worker said of its report
}

// perform starts the workers, plays, and ends them, whatever happened.
func (d *director) perform(ctx context.Context) error {
	d.introduce()
	defer func() {
		for _, c := range []*child{d.w1, d.w2} {
			if c != nil {
				c.kill()
			}
		}
	}()
	for _, step := range []func(context.Context) error{
		d.cast, d.firstWorks, d.freeze, d.secondTakesOver, d.secondPublishes, d.firstResumes, d.secondReleases,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *director) introduce() {
	d.story.tell("demo", "%s", d.server.Source())
	if d.swept > 0 {
		d.story.tell("demo", "dropped what demos that were killed had left: schemas: %d", d.swept)
	}
	where := "migrated schema " + d.schema.Name()
	switch {
	case d.server.Started():
	case d.Keep:
		where += ", which is kept; nothing else is touched"
	default:
		where += ", dropped at the end; nothing else is touched"
	}
	d.story.tell("demo", "%s", where)
	write := "the store checks each write's fence"
	if d.Unfenced {
		write = "writes are a plain UPDATE, no fence"
	}
	d.story.tell("demo", "leases live %.3g s; %s", d.TTL.Seconds(), write)
}

// cast starts both workers. Each waits for the director before it asks for the lease.
func (d *director) cast(context.Context) (err error) {
	if d.w1, err = d.hire(first, w1Files, pauseAcquire, pauseWrite); err != nil {
		return err
	}
	d.w2, err = d.hire(second, w2Files, pauseAcquire, pauseRelease)
	return err
}

func (d *director) hire(name string, files []string, pauses ...string) (*child, error) {
	c, err := start(name, d.Command(Worker{
		Name: name, URL: d.server.URL(), Schema: d.schema.Name(), Report: Report, TTL: d.TTL,
		Unfenced: d.Unfenced, Pauses: pauses, Files: files,
	}))
	if err != nil {
		return nil, err
	}
	d.story.tell(name, "process %d, to read %s", c.cmd.Process.Pid, strings.Join(files, ", "))
	return c, nil
}

// firstWorks: (1) W1 asks, (2) the authority grants, (3) W1 reads the report and computes. Then it
// looks at its lease a last time.
func (d *director) firstWorks(ctx context.Context) error {
	if err := d.release(ctx, d.w1, pauseAcquire); err != nil {
		return err
	}
	acquired, err := d.w1.expect(ctx, eventAcquired)
	if err != nil {
		return err
	}
	d.tellAcquired(first, acquired)
	if err := d.computes(ctx, d.w1); err != nil {
		return err
	}
	_, err = d.w1.expect(ctx, eventPaused)
	return err
}

// freeze: (4) W1 pauses; it can send no renewal. The line that lets it write is in its pipe before
// it runs again, see the package's comment.
func (d *director) freeze(ctx context.Context) error {
	if err := d.w1.freeze(ctx); err != nil {
		return err
	}
	d.story.tell(first, "FROZEN with SIGSTOP, after this check and before its write")
	return d.w1.goOn()
}

// secondTakesOver: (5) the authority lets the lease expire, (6) W2 acquires.
func (d *director) secondTakesOver(ctx context.Context) error {
	if err := d.release(ctx, d.w2, pauseAcquire); err != nil {
		return err
	}
	waiting, err := d.w2.expect(ctx, eventWaiting)
	if err != nil {
		return err
	}
	d.story.tell(second, "asks for %s: held by %s for another %s, waits", Report, waiting.Owner, seconds(waiting.RemainingMS))
	acquired, err := d.w2.expect(ctx, eventAcquired)
	if err != nil {
		return err
	}
	lost, err := d.tenureOf(ctx, Report, first)
	if err != nil {
		return err
	}
	d.story.tell("lease", "%s's lease, fence %d, is over: %s", first, lost.fence, lost.ended)
	d.tellAcquired(second, acquired)
	return nil
}

// secondPublishes: (7) W2 publishes, (8) the store persists version and fence.
func (d *director) secondPublishes(ctx context.Context) error {
	if err := d.computes(ctx, d.w2); err != nil {
		return err
	}
	result, err := d.w2.expect(ctx, eventResult)
	if err != nil {
		return err
	}
	if result.Result != resultApplied {
		return fmt.Errorf("%s's write came to %q: %s", second, result.Result, result.Text)
	}
	now, err := d.reports.Read(ctx, Report)
	if err != nil {
		return err
	}
	d.story.tell("store", "accepted version %d by %s, fence %d", now.Version, now.Owner, now.Fence)
	_, err = d.w2.expect(ctx, eventPaused)
	return err
}

// firstResumes: (9) W1 resumes and its write arrives, (10) the store answers, (11) W1 learns of its
// loss, throws its result away and emits a diagnostic event.
func (d *director) firstResumes(ctx context.Context) error {
	d.story.tell(first, "RESUMED with SIGCONT; its write is the first thing it does")
	if err := d.w1.thaw(); err != nil {
		return err
	}
	result, err := d.w1.expect(ctx, eventResult)
	if err != nil {
		return err
	}
	if result.Result == resultApplied {
		d.story.tell("store", "accepted version %d by %s, fence %d: W2's is overwritten", result.Version, first, result.Fence)
	} else {
		d.story.tell("store", "REFUSED %s: %s", first, result.Text)
	}
	lost, err := d.w1.expect(ctx, eventLost)
	if err != nil {
		return err
	}
	end := "discards its result"
	if result.Result == resultApplied {
		end = "too late, its result is published"
	}
	d.story.tell(first, "learns of its loss (%s); %s", lost.Text, end)
	diagnostic, err := d.w1.expect(ctx, eventDiagnostic)
	if err != nil {
		return err
	}
	d.story.tell(first, "diagnostic: resource=%s fence=%d result=%s", diagnostic.Text, diagnostic.Fence, diagnostic.Result)
	return d.w1.finish(ctx)
}

// secondReleases: (12) W2 releases exactly its lease.
func (d *director) secondReleases(ctx context.Context) error {
	if err := d.w2.goOn(); err != nil {
		return err
	}
	released, err := d.w2.expect(ctx, eventReleased)
	if err != nil {
		return err
	}
	d.story.tell(second, "released its lease %s by that id", short(released.Lease))
	return d.w2.finish(ctx)
}

// release waits until the worker pauses at this place and lets it go on.
func (d *director) release(ctx context.Context, c *child, at string) error {
	paused, err := c.expect(ctx, eventPaused)
	if err != nil {
		return err
	}
	if paused.At != at {
		return fmt.Errorf("%s pauses before its %s, not its %s", c.name, paused.At, at)
	}
	return c.goOn()
}

// computes follows a worker from its grant to its last look at the lease.
func (d *director) computes(ctx context.Context, c *child) error {
	read, err := c.expect(ctx, eventEstablished)
	if err != nil {
		return err
	}
	found := "nothing is published yet"
	if read.Version > 0 {
		found = fmt.Sprintf("version %d", read.Version)
	}
	d.story.tell(c.name, "read the report: %s", found)
	computed, err := c.expect(ctx, eventComputed)
	if err != nil {
		return err
	}
	d.computed[c.name] = computed
	d.story.tell(c.name, "computed it: %d stores, %d sales, total %s", computed.Files, computed.Rows, computed.Total)
	checked, err := c.expect(ctx, eventChecked)
	if err != nil {
		return err
	}
	d.story.tell(c.name, "checked its lease: held, good for %s", seconds(checked.RemainingMS))
	return nil
}

func (d *director) tellAcquired(who string, e event) {
	d.story.tell(who, "acquired %s: lease %s, fence %d", Report, short(e.Lease), e.Fence)
}
