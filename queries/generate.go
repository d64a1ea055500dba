// Package queries is the folder of the SQL that sqlc turns into Go, one sub-folder for each line of
// migrations. It holds no Go of its own.
//
// Each query opens with a comment that says what it does and what zero rows mean; the comment
// becomes the doc comment of the generated method. Names are unqualified and marked, so that
// internal/schema can put a schema in:
//
//	FROM /*schema.*/resource_lease AS l
//
// What sqlc cannot see must be said in the text: cast each parameter used in arithmetic, in a row
// comparison or in a call, and cast and coalesce each computed column, or its type is guessed.
package queries

//go:generate go tool -modfile=../tools/go.mod sqlc generate --file ../sqlc.yaml
