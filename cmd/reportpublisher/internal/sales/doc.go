// Package sales reads CSV files of sales, adds up one month by store and by sku in exact decimal
// arithmetic, and writes the result as CSV.
//
// It refuses rather than guesses: whatever might be read in two ways is an error that names the
// file, the line and the reason, and no sum is returned beside an error. The same rows give the
// same bytes, in whatever order the files and the rows come.
package sales
