package fence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// A Column is a watermark in a table of one's own: a bigint column for the fence, best with a uuid
// column for the lease beside it. A NULL fence is that of a row which no owner has written yet.
//
// The rule is then part of the UPDATE itself. With the key in $3, this is what Update sends:
//
//	UPDATE devices AS t
//	SET fence = $1, lease_id = $2, setting = ...
//	WHERE t.device_id = $3
//	  AND (t.fence IS NULL OR t.fence < $1 OR (t.fence = $1 AND t.lease_id = $2))
//
// An UPDATE that waits for a rival judges the row as the rival left it, so READ COMMITTED is enough.
type Column struct {
	Table pgx.Identifier // {"schema", "table"}, or the table alone, which leaves it to search_path
	Key   string         // the column that names the row
	Fence string         // bigint
	Lease string         // uuid; empty where there is none: then leases that share a fence are not told apart

	Recorder Recorder // keeps the record of stale owners; nil: none
}

// A Change is what an UPDATE does beside carrying the fence. Set and Where are SQL, written by the
// program and never from input; the row's columns are t's.
type Change struct {
	Set   string // as in "setting = $1, version = t.version + 1"; empty: the row is only claimed
	Where string // a further condition, as in "t.version = $2"; may be empty
	Args  []any  // $1, $2, ... of Set and Where
	Key   any    // the row; default: the name of the token's resource
}

// Update changes a row under the token. The error matches ErrStaleOwner (a *StaleError) where the
// row has accepted a newer token; ErrConflict where the token is good and Where is not true:
// the fence is then not raised either, so call Establish first if that matters;
// ErrNotFound where there is no such row: insert it, and leave its fence NULL or make it the
// token's; ErrInvalidOp or ErrInvalidToken where nothing was sent. All these leave a transaction
// usable, and change nothing. A stale owner is recorded by the Recorder, if there is one; else pass the
// error to Watermarks.Record.
//
// Rows of one table may belong to several resources, but each row to one: fences of different
// resources have no order.
func (c Column) Update(ctx context.Context, db DB, token Token, change Change) error {
	if change.Key == nil {
		change.Key = token.Resource()
	}
	err := c.check(token, change)
	if err == nil {
		err = alone(ctx, db, func() error { return c.update(ctx, db, token, change) })
	}
	if err != nil {
		return c.Recorder.Keep(ctx, &Error{Op: "update", Resource: token.Resource(), Err: err})
	}
	return nil
}

// Establish raises the fence of a row and changes nothing else: from then on no write of an earlier
// owner is accepted. A nil key means the name of the token's resource. Its errors are as of Update.
func (c Column) Establish(ctx context.Context, db DB, token Token, key any) error {
	return c.Update(ctx, db, token, Change{Key: key})
}

func (c Column) update(ctx context.Context, db DB, token Token, change Change) error {
	args := slices.Concat(change.Args, []any{token.Fence(), change.Key})
	if c.Lease != "" {
		args = append(args, uuid(token.LeaseID()))
	}
	for range 3 {
		tag, err := db.Exec(ctx, c.SQL(change), args...)
		if err != nil || tag.RowsAffected() > 0 {
			return err
		}
		// Nothing was changed. What now stands against the token always will: fences only grow. If
		// nothing does, a rival made the row between the two statements.
		if err := c.refused(ctx, db, token, change); err != nil {
			return err
		}
	}
	return errUnchanged
}

// errUnchanged: neither an older fence nor a missing row is the reason.
var errUnchanged = errors.New("no row was changed, and nothing stands against the token: a trigger or a policy of the table keeps it from the row, or rivals come and go")

// SQL returns the statement that Update sends, for other drivers and for reading. Its arguments
// are those of the change, then the fence, the key and, with a Lease column, the lease id.
func (c Column) SQL(change Change) string {
	n := len(change.Args)
	set, same := "", ""
	if change.Set != "" {
		set = ", " + change.Set
	}
	if c.Lease != "" {
		set += fmt.Sprintf(", %s = $%d", quote(c.Lease), n+3)
		same = fmt.Sprintf(" AND t.%s = $%d", quote(c.Lease), n+3)
	}
	fence := quote(c.Fence)
	sql := fmt.Sprintf("UPDATE %[1]s AS t SET %[2]s = $%[4]d::bigint%[6]s WHERE t.%[3]s = $%[5]d"+
		" AND (t.%[2]s IS NULL OR t.%[2]s < $%[4]d::bigint OR (t.%[2]s = $%[4]d::bigint%[7]s))",
		c.Table.Sanitize(), fence, quote(c.Key), n+1, n+2, set, same)
	if change.Where != "" {
		sql += " AND (" + change.Where + ")"
	}
	return sql
}

// refused tells why an UPDATE changed no row.
func (c Column) refused(ctx context.Context, db DB, token Token, change Change) error {
	lease := "NULL::uuid"
	if c.Lease != "" {
		lease = "t." + quote(c.Lease)
	}
	sql := fmt.Sprintf("SELECT t.%s, %s FROM %s AS t WHERE t.%s = $1", quote(c.Fence), lease, c.Table.Sanitize(), quote(c.Key))
	var greatest *int64
	var holder pgtype.UUID
	err := db.QueryRow(ctx, sql, change.Key).Scan(&greatest, &holder)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("%w: no row of %s has this key", ErrNotFound, strings.Join(c.Table, "."))
	case err != nil:
		return err
	case greatest != nil && (*greatest > token.Fence() || *greatest == token.Fence() && c.Lease != "" && holder != uuid(token.LeaseID())):
		return &StaleError{
			Resource: token.Resource(), Fence: token.Fence(), LeaseID: token.LeaseID(),
			GreatestFence: *greatest, GreatestLeaseID: holder.Bytes, rejection: newID(),
		}
	case change.Where != "":
		return fmt.Errorf("%w: the row is not as expected", ErrConflict)
	}
	return nil
}

func (c Column) check(token Token, change Change) error {
	if err := checkToken(token); err != nil {
		return err
	}
	if len(c.Table) == 0 || c.Key == "" || c.Fence == "" || change.Key == "" {
		return fmt.Errorf("%w: table, key column, fence column and key are needed", ErrInvalidOp)
	}
	return nil
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
