package demo

import (
	"context"
	"errors"
	"fmt"

	"github.com/pglease/pglease/pglease/fence"
)

// epilogue shows what the report itself has kept, and says what that means.
func (d *director) epilogue(ctx context.Context, o Outcome) error {
	rejections, err := d.reports.Rejections(ctx, Report)
	if err != nil {
		return err
	}
	d.story.gap()
	d.story.say("The report's own history, kept by the database:")
	d.story.gap()
	digits := len(fmt.Sprint(max(o.W1Fence, o.W2Fence, 10000)))
	d.story.row("  version  %*s  by", digits, "fence")
	for _, v := range o.History {
		d.story.row("  %7d  %*d  %s", v.Version, digits, v.Fence, v.By)
	}
	for _, r := range rejections {
		why := "conflict"
		if errors.Is(r.Err, fence.ErrStaleOwner) {
			why = "stale owner"
		}
		d.story.row("  refused  %*d  %s, %s", digits, r.Fence, r.Owner, why)
	}
	d.story.gap()
	d.story.say("%s", o.verdict(d.computed))
	return nil
}
