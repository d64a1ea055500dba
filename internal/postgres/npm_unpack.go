package postgres

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"strings"
)

// npmFiles is the folder of an archive that holds the server.
const npmFiles = "package/native/"

// unpackNPM unpacks the server's part of an npm archive into a new directory, which everybody may
// read. Nothing that the archive says can lead outside of it.
func unpackNPM(archive []byte, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // a directory was read
	packed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	files := tar.NewReader(packed)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return linkNPM(root)
		}
		if err != nil {
			return err
		}
		name, ok := strings.CutPrefix(header.Name, npmFiles)
		if !ok || header.Typeflag != tar.TypeReg {
			continue
		}
		if err := unpackFile(root, name, header.FileInfo().Mode(), files); err != nil {
			return err
		}
	}
}

func unpackFile(root *os.Root, name string, mode os.FileMode, content io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644|mode.Perm()&0o111)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}

// linkNPM makes the symbolic links, which npm cannot carry and the package lists in a file. Both
// ends are always in one folder.
func linkNPM(root *os.Root) error {
	list, err := root.ReadFile("pg-symlinks.json")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(list, &links); err != nil {
		return err
	}
	for _, l := range links {
		if err := root.Symlink(path.Base(l.Source), strings.TrimPrefix(l.Target, "native/")); err != nil {
			return err
		}
	}
	return nil
}
