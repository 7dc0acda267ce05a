package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long a watcher waits for a burst of changes to end: editors save in several steps.
const settle = 80 * time.Millisecond

// watcher tells when files below a path change. It watches directories, not files, so that editors which save by renaming a
// new file over the old one are seen.
type watcher struct {
	fs   *fsnotify.Watcher
	file string // when one file is watched: its path; else ""
}

// newWatcher watches the file or directory at name.
func newWatcher(name string) (*watcher, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	inner, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	w := &watcher{fs: inner}
	dir := name
	if !info.IsDir() {
		w.file, dir = filepath.Clean(name), filepath.Dir(name)
		err = inner.Add(dir)
	} else {
		err = w.addTree(dir)
	}
	if err != nil {
		inner.Close()
		return nil, err
	}
	return w, nil
}

func (w *watcher) addTree(dir string) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir():
			return nil
		case p != dir && unwatched(d.Name()):
			return fs.SkipDir
		}
		return w.fs.Add(p)
	})
}

// wait blocks until something changed and then nothing did for a moment. It returns ctx's error when that ends first.
func (w *watcher) wait(ctx context.Context) error {
	var quiet <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-quiet:
			return nil
		case err := <-w.fs.Errors:
			return err
		case e := <-w.fs.Events:
			if !w.concerns(e) {
				continue
			}
			if info, err := os.Stat(e.Name); w.file == "" && err == nil && info.IsDir() {
				if err := w.addTree(e.Name); err != nil {
					return err
				}
			}
			quiet = time.After(settle)
		}
	}
}

func (w *watcher) concerns(e fsnotify.Event) bool {
	if e.Op == fsnotify.Chmod {
		return false
	}
	if w.file != "" {
		return filepath.Clean(e.Name) == w.file
	}
	return !unwatched(filepath.Base(e.Name))
}

// unwatched reports whether a file or directory is no part of a project's code, or is what compilers make of it.
func unwatched(name string) bool {
	return ignored(name) || name == "target" || filepath.Ext(name) == ".wasm"
}

func (w *watcher) Close() error { return w.fs.Close() }
