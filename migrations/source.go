package migrations

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/golang-migrate/migrate/v4/source"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/pglease/pglease/internal/schema"
)

//go:embed */*.sql
var files embed.FS

// A Migration is one step of a line. Up and Down are SQL for one transaction each; they name
// tables by schema and depend on no setting of the session.
type Migration struct {
	Version  uint
	Name     string
	Up, Down string
}

// Lines returns the lines that this version of the module has, in the order in which they are to
// be applied.
func Lines() []Line {
	return slices.DeleteFunc([]Line{Lease, Jobs, Fence, Report}, func(line Line) bool {
		entries, err := files.ReadDir(string(line))
		return err != nil || len(entries) == 0
	})
}

// Latest returns the last version of a line, 0 for a line that there is not.
func Latest(line Line) uint {
	all, err := All(line, DefaultSchema)
	if err != nil || len(all) == 0 {
		return 0
	}
	return all[len(all)-1].Version
}

// All returns the migrations of a line in the order of their versions, written for a schema; the
// empty name means [DefaultSchema]. They do not create the schema itself. The error is about an
// unknown line or an impossible schema name.
func All(line Line, schemaName string) ([]Migration, error) {
	s, err := newSchema(schemaName)
	if err != nil {
		return nil, err
	}
	src, err := open(line, s)
	if err != nil {
		return nil, err
	}
	var all []Migration
	for version, err := src.First(); ; version, err = src.Next(version) {
		if errors.Is(err, fs.ErrNotExist) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		m, err := read(src, version)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
}

func read(src source.Driver, version uint) (Migration, error) {
	up, name, err := src.ReadUp(version)
	if err != nil {
		return Migration{}, err
	}
	down, _, err := src.ReadDown(version)
	if err != nil {
		return Migration{}, err
	}
	upSQL, err := io.ReadAll(up)
	if err != nil {
		return Migration{}, err
	}
	downSQL, err := io.ReadAll(down)
	return Migration{Version: version, Name: name, Up: string(upSQL), Down: string(downSQL)}, err
}

// newSchema refuses, beyond what is impossible anyway, what would end the body of a function.
func newSchema(name string) (*schema.Schema, error) {
	if strings.Contains(name, "$$") {
		return nil, fmt.Errorf("schema name %q: functions are quoted with $$, so it may not contain that", name)
	}
	return schema.New(name)
}

// open returns the files of a line with the schema put in.
func open(line Line, s *schema.Schema) (source.Driver, error) {
	if !slices.Contains(Lines(), line) {
		return nil, fmt.Errorf("there is no line %q, only %q", line, Lines())
	}
	return iofs.New(qualified{files, s}, string(line))
}

// qualified is a file system whose files have the schema at each mark.
type qualified struct {
	fs.FS
	schema *schema.Schema
}

func (q qualified) Open(name string) (fs.File, error) {
	file, err := q.FS.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil || info.IsDir() {
		return file, err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	return qualifiedFile{file, bytes.NewReader([]byte(q.schema.SQL(string(text))))}, nil
}

type qualifiedFile struct {
	fs.File
	text *bytes.Reader
}

func (f qualifiedFile) Read(p []byte) (int, error) { return f.text.Read(p) }
