// Package doctor examines a data directory that no server uses, and says in words what is wrong and what to do.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/engine"
	"github.com/skep-dev/skep/store/internal/disk"
	"github.com/skep-dev/skep/store/ledger"
)

// Level says how bad a finding is.
type Level uint8

const (
	unknownLevel Level = iota
	Fine
	Note   // nothing is wrong, but somebody may want to know
	Damage // data is lost or wrong, or the store cannot be used
)

var levels = [...]string{unknownLevel: "unknown", Fine: "fine", Note: "note", Damage: "damage"}

func (l Level) String() string {
	if int(l) < len(levels) {
		return levels[l]
	}
	return levels[unknownLevel]
}

// MarshalText implements encoding.TextMarshaler.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Finding is the outcome of one check.
type Finding struct {
	Level Level  `json:"level"`
	Check string `json:"check"`
	Found string `json:"found"`
	Do    string `json:"do,omitempty"`
}

// Report is what Examine found, in the order of looking.
type Report struct {
	Data     string      `json:"data"`
	Engine   engine.Kind `json:"engine"`
	Findings []Finding   `json:"findings"`
}

// Damaged reports whether anything is damaged.
func (r Report) Damaged() bool {
	for _, f := range r.Findings {
		if f.Level == Damage {
			return true
		}
	}
	return false
}

func (r *Report) add(l Level, check, do, found string, args ...any) {
	r.Findings = append(r.Findings, Finding{l, check, fmt.Sprintf(found, args...), do})
}

const restore = "restore the newest good backup with skep restore; keep this directory until that is done"

// Examine reads all of the data directory dir. Opening the database may replay its log; nothing else is changed. It returns
// an error when it cannot look: there is no store, or a server is using it. What it sees is in the report.
func Examine(ctx context.Context, dir string, log *slog.Logger) (r Report, err error) {
	r.Data = dir
	if r.Engine, err = engine.Detect(dir); err != nil {
		return r, err
	}
	if r.Engine == engine.Unknown {
		return r, &agent.Error{
			Kind: agent.NotFound, Msg: "there is no store in " + dir,
			Hint: "name the data directory with --data; where files named MANIFEST were lost from it, restore a backup",
		}
	}
	if err := r.room(dir); err != nil {
		return r, err
	}
	db, err := engine.Open(dir, r.Engine, &engine.Options{Verify: true, MinFree: -1, Log: log})
	if err != nil {
		return r, r.refused("database", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	r.add(Fine, "database", "", "%s opens, and is sound by its own account", r.Engine)

	st, err := store.Open(ctx, db, dir, &store.Options{Check: -1, MinFree: -1, Log: log})
	if err != nil {
		return r, r.refused("store", err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if st.WasClosed() {
		r.add(Fine, "store", "", "format %d; it was closed properly", store.Format)
	} else {
		r.add(Note, "store", "nothing: this is what a crash leaves, and all of it is checked now", "format %d; it was not closed properly", store.Format)
	}
	if err := r.contents(ctx, st); err != nil {
		return r, err
	}
	return r, r.usage(ctx, st, dir)
}

// usage looks at the files of the usage ledger.
func (r *Report) usage(ctx context.Context, st *store.Store, dir string) error {
	found, err := ledger.Examine(ctx, st, dir)
	if err != nil {
		return r.orDamage("usage", err)
	}
	for _, err := range found.Damaged {
		r.add(Damage, "usage", "move that file away: what it has and the daily sums have not is lost, and nothing else", "%v", err)
	}
	if n := len(found.Missing); n > 0 {
		r.add(Note, "usage", "nothing: daily sums have what was rolled up", "%d files between others are not there, the first is number %d", n, found.Missing[0])
	}
	if found.Torn != "" {
		r.add(Note, "usage", "nothing: a crash leaves that, and the next start cuts it off", "%s", found.Torn)
	}
	if n := found.Open; n > 0 {
		r.add(Note, "usage", "nothing: the next start counts each of them once, with what was known when it began",
			"%d calls of models were under way when the server stopped", n)
	}
	if len(found.Damaged) == 0 {
		r.add(Fine, "usage", "", "%d files with %d events are whole", found.Segments, found.Events)
	}
	return nil
}

// room looks at the disk, which must have some for the database to be opened.
func (r *Report) room(dir string) error {
	free, err := disk.Free(dir)
	switch {
	case err != nil:
		return agent.Wrap(agent.Unavailable, err, "cannot look at the disk of "+dir)
	case free < 64<<20:
		return &agent.Error{
			Kind: agent.Unavailable, Msg: fmt.Sprintf("the disk of %s has %d MiB left, too few to open the store", dir, free>>20),
			Hint: "make room and look again; nothing is lost by a full disk",
		}
	case free < 256<<20:
		r.add(Note, "disk", "make room: the server refuses to write", "%d MiB are left", free>>20)
	default:
		r.add(Fine, "disk", "", "%d MiB are left", free>>20)
	}
	return nil
}

// refused notes a store that cannot be opened because it is damaged; another reason is an error of Examine.
func (r *Report) refused(check string, err error) error {
	e := agent.AsError(err)
	if e.Kind != agent.Internal {
		return err
	}
	of := ""
	if c, ok := errors.AsType[*store.CorruptError](err); ok {
		if id, ok := c.Instance(); ok {
			of = fmt.Sprintf("instance %q of agent %s in app %s: ", id.Key, id.Agent, id.App)
		}
	}
	r.add(Damage, check, restore, "%s%v", of, err)
	return nil
}

func (r *Report) contents(ctx context.Context, st *store.Store) error {
	if err := st.Verify(ctx); err != nil {
		if rerr := r.refused("records", err); rerr != nil {
			return rerr
		}
	}
	records, named := 0, map[agent.Digest]bool{}
	err := st.Export(ctx, func(rec store.Record) error {
		records++
		for _, d := range rec.Blobs {
			named[d] = true
		}
		return nil
	})
	if err != nil { // Verify has told of it
		return r.orDamage("records", err)
	}
	if !r.Damaged() {
		r.add(Fine, "records", "", "%d records are whole and agree with each other", records)
	}
	return r.blobs(ctx, st, named)
}

// orDamage is refused for a check that may have been noted before.
func (r *Report) orDamage(check string, err error) error {
	if r.Damaged() {
		return nil
	}
	return r.refused(check, err)
}

func (r *Report) blobs(ctx context.Context, st *store.Store, named map[agent.Digest]bool) error {
	var good, orphans int
	var waste int64
	damaged := false
	err := st.Blobs(ctx, func(d agent.Digest, size int64) error {
		_, err := st.Blob(ctx, d)
		if !named[d] {
			orphans++
			waste += size
			if agent.KindOf(err) == agent.Internal && err != nil {
				r.add(Note, "blobs", "delete the file "+file(r.Data, d), "blob %s is damaged, and nothing names it", d)
				return nil
			}
			return err
		}
		delete(named, d)
		if err == nil {
			good++
			return nil
		}
		damaged = true
		return r.refused("blobs", err)
	})
	if err != nil {
		return err
	}
	for d := range named {
		damaged = true
		r.add(Damage, "blobs", restore, "blob %s is missing", d)
	}
	if !damaged {
		r.add(Fine, "blobs", "", "%d blobs are whole", good)
	}
	if orphans > 0 {
		r.add(Note, "blobs", "nothing; skep backup leaves them out", "%d blobs with %d KiB are named by nothing", orphans, waste>>10)
	}
	return nil
}

func file(data string, d agent.Digest) string {
	return filepath.Join(data, "blobs", d.Hex()[:2], d.Hex()[2:])
}
