// Package sample holds a month's sales of three stores, to try the publisher with. The program in
// generate made the files.
package sample

import "embed"

//go:generate go run ./generate

// Files are harbour.csv, market.csv and station.csv.
//
//go:embed *.csv
var Files embed.FS
