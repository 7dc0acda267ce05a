package store

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
)

// Docs is a space of documents: JSON records of an app, each of which has a name and a revision.
type Docs string

const (
	ToolServers Docs = "tool-servers" // agent.ToolServer, by name
	Policies    Docs = "policies"
	Skills      Docs = "skills"     // agent.Skill, by name
	Files       Docs = "files"      // agent.File, by SESSION/PATH, of sessions that are there; see PutFile
	Allowances  Docs = "allowances" // agent.Allowance, by id

	Providers   Docs = "providers"    // agent.Provider, by name
	ModelRoutes Docs = "model-routes" // agent.ModelRoute, by name
	ModelLimits Docs = "model-limits" // agent.ModelLimit, by name
	Guardrails  Docs = "guardrails"   // agent.Guardrail, by name

	modelKeys Docs = "model-keys" // modelKeyRecord, by id; see PutModelKey
	modelLogs Docs = "model-logs" // agent.ModelLog, by agent.LogName; see PutModelLog

	modelSettings Docs = "model-settings" // see PutModelLogging
	Budgets       Docs = "budgets"        // what was spent of budgets of the policy

	environments         Docs = "environments"          // environmentRecord, by name: the newest revision; see PutEnvironment
	environmentRevisions Docs = "environment-revisions" // agent.Environment, by NAME@REVISION
	frozenEnvironments   Docs = "frozen-environments"   // frozenRecord, by SESSION/NAME; see FreezeEnvironment
)

// docSpace is what the store knows of a space.
type docSpace struct {
	noun string
	most int64 // documents of an app; of a session in Files
}

var docSpaces = map[Docs]docSpace{
	ToolServers: {"tool server", maxDocs},
	Policies:    {"policy", maxDocs},
	Skills:      {"skill", maxDocs},
	Files:       {"file", agent.MaxFiles},
	Allowances:  {"allowance", maxDocs},
	Providers:   {"provider", maxDocs},
	ModelRoutes: {"model route", maxDocs},
	ModelLimits: {"model limit", maxDocs},
	Guardrails:  {"guardrail", maxDocs},
	modelKeys:   {"model key", maxModelKeys},
	modelLogs:   {"logged call", maxModelKeys},

	modelSettings: {"setting of models", maxDocs},
	Budgets:       {"budget", maxDocs},

	environments:         {"environment", maxDocs},
	environmentRevisions: {"revision of an environment", maxDocs},
	frozenEnvironments:   {"session's environment", maxFrozen},
}

const (
	MaxDoc     = 240 << 10 // bytes of a document, as JSON
	MaxDocName = 1024      // bytes of its name

	maxDocs      = 100_000
	maxModelKeys = 1_000_000
	maxFrozen    = 1 << 40 // sessions are kept for good
)

// AnyRev is given for the revision of a document by who does not mind which it has, or whether it is there.
const AnyRev int64 = -1

// docAt names a document.
type docAt struct {
	space Docs
	app   agent.App
	name  string
}

func (d docAt) key() key { return docPrefix(d.space, d.app) + key(escaped(d.name)) }

// headKey is of the documents that are counted together: those of a session, or of the whole space.
func (d docAt) headKey() key { return join(prefixDocHead, string(d.space), string(d.app), d.group()) }

func (d docAt) group() string {
	if d.space == Files {
		session, _, _ := strings.Cut(d.name, "/")
		return session
	}
	return "-"
}

func docPrefix(space Docs, app agent.App) key { return join(prefixDoc, string(space), string(app), "") }

// check returns an Invalid error unless d can be the name of a document.
func (d docAt) check() error {
	sp, ok := docSpaces[d.space]
	if !ok {
		return agent.Errorf(agent.Invalid, "there is no space of documents %q", string(d.space))
	}
	if err := checkApp(d.app); err != nil {
		return err
	}
	switch {
	case d.name == "":
		return agent.Errorf(agent.Invalid, "a %s has to have a name", sp.noun)
	case len(d.name) > MaxDocName:
		return agent.Errorf(agent.Invalid, "the name of a %s is %d bytes long: %d are allowed", sp.noun, len(d.name), MaxDocName)
	case !utf8.ValidString(d.name):
		return agent.Errorf(agent.Invalid, "the name of a %s is not valid UTF-8", sp.noun)
	case d.space == Files:
		session, path, ok := strings.Cut(d.name, "/")
		if !ok || path == "" || !isPart(session) {
			return agent.Errorf(agent.Invalid, "%.200q names no file: write SESSION/PATH", d.name)
		}
	}
	return nil
}

func (d docAt) notFound() error { return notFound(docSpaces[d.space].noun, d.name) }

// docHead is what is known of documents that are counted together. It stays when they go, so that no revision is given twice.
type docHead struct {
	rev   int64 // of the newest change
	count int64
	bytes int64 // of names and JSON
}

func (h docHead) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(h.rev))
	b = binary.BigEndian.AppendUint64(b, uint64(h.count))
	return binary.BigEndian.AppendUint64(b, uint64(h.bytes))
}

func parseDocHead(k key, b []byte) (docHead, error) {
	if len(b) != 24 {
		return docHead{}, corrupt(k, "%v", errShort)
	}
	n := func(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }
	h := docHead{n(0), n(8), n(16)}
	if h.rev < 1 || h.count < 0 || h.bytes < h.count || h.rev < h.count {
		return docHead{}, corrupt(k, "%d documents of %d bytes up to revision %d cannot be", h.count, h.bytes, h.rev)
	}
	return h, nil
}

// head reads the head of the documents that d is counted with. below is a snapshot, in which a head that was lost still has documents.
func (d docAt) head(g getter, below snapshot) (h docHead, err error) {
	k := d.headKey()
	b, found, err := g.get(k)
	switch {
	case err != nil:
		return h, err
	case found:
		return parseDocHead(k, b)
	}
	if _, found, err = below.get(k); err != nil || found {
		return h, err
	}
	from := d.groupPrefix()
	return h, below.each(from, prefixEnd(from), false, func(key, []byte) error { return corrupt(k, "record is missing") })
}

// groupPrefix is of the documents that are counted together.
func (d docAt) groupPrefix() key {
	from := docPrefix(d.space, d.app)
	if d.space == Files {
		from += key(escaped(d.group() + "/"))
	}
	return from
}

// size is what a document counts for. It is above 0, as names are not empty.
func (d docAt) size(r row) int64 { return int64(len(d.name) + len(r.fields)) }

// PutDoc stores v, which is written as JSON of up to MaxDoc bytes, as a document of an app that is there, and returns its new revision.
// Revisions only ever grow. rev is the one that the document must have: 0 when it must not be there yet, else that is an Exists error;
// AnyRev for whatever is there. Another is a Conflict error. Names are UTF-8 of up to MaxDocName bytes. Blobs that v names, as the types
// of the spaces do, must have been put before.
func (s *Store) PutDoc(ctx context.Context, space Docs, app agent.App, name string, rev int64, v any) (int64, error) {
	d := docAt{space, app, name}
	if err := d.check(); err != nil {
		return 0, err
	}
	data, err := s.docJSON(space, v)
	if err != nil {
		return 0, err
	}
	var now int64
	err = s.updateOf(ctx, app, func(t *tx) error {
		was, h, err := t.openDoc(d)
		if err == nil {
			err = d.checkRev(was, rev)
		}
		if err != nil {
			return err
		}
		now, err = t.putDoc(d, was, h, data)
		return err
	})
	if err != nil {
		return 0, err
	}
	return now, nil
}

// openDoc reads a document that is to be changed, whose ordinal is 0 when there is none, and the head of those it is counted with.
func (t *tx) openDoc(d docAt) (was row, h docHead, err error) {
	if err = t.mustHaveApp(d.app); err != nil {
		return was, h, err
	}
	if h, err = d.head(t, t.below.snapshot); err != nil {
		return was, h, err
	}
	was, _, err = lookup(t, d.key(), nil)
	return was, h, err
}

// checkRev returns an error unless the document, which was read by openDoc, has the revision that it must have.
func (d docAt) checkRev(was row, rev int64) error {
	noun := docSpaces[d.space].noun
	switch {
	case rev == AnyRev || rev == was.ord:
		return nil
	case rev == 0:
		return agent.Errorf(agent.Exists, "%s %.200q is there already", noun, d.name)
	case was.ord == 0:
		return agent.Errorf(agent.Conflict, "%s %.200q was deleted meanwhile", noun, d.name)
	}
	return &agent.Error{
		Kind: agent.Conflict, Msg: fmt.Sprintf("%s %.200q was changed meanwhile: it is at revision %d, and not %d", noun, d.name, was.ord, rev),
		Hint: "read it again, and make the change to what it is now",
	}
}

// putDoc writes a document that was read by openDoc.
func (t *tx) putDoc(d docAt, was row, h docHead, data []byte) (rev int64, err error) {
	if d.space == Files {
		if _, err := find(t, sessions, d.app, d.group(), "session", nil); err != nil {
			return 0, err
		}
	}
	now := row{ord: h.rev + 1, fields: data}
	if was.ord > 0 {
		h.bytes -= d.size(was)
	} else if sp := docSpaces[d.space]; h.count >= sp.most {
		return 0, &agent.Error{
			Kind: agent.Exhausted, Msg: fmt.Sprintf("%s %.200q would be one too many: %d are allowed", sp.noun, d.name, sp.most),
			Hint: "delete some that are not needed any more",
		}
	} else {
		h.count++
	}
	h.rev, h.bytes = now.ord, h.bytes+d.size(now)
	if h.bytes < h.count {
		return 0, corrupt(d.headKey(), "it counts fewer bytes than there are")
	}
	t.put(d.headKey(), h.encode())
	t.put(d.key(), now.encode())
	return now.ord, nil
}

// docJSON returns a document as it is kept. Its blobs must be there.
func (s *Store) docJSON(space Docs, v any) ([]byte, error) {
	data, err := plainJSON(v)
	if err != nil {
		return nil, agent.Wrap(agent.Invalid, err, "the document cannot be written as JSON")
	}
	noun := docSpaces[space].noun
	if len(data) > MaxDoc {
		return nil, agent.Errorf(agent.Invalid, "a %s of %d bytes is too big: %d are allowed", noun, len(data), MaxDoc)
	}
	blobs, err := docBlobs(space, data)
	if err != nil {
		return nil, agent.Wrap(agent.Invalid, err, "the document is no "+noun)
	}
	for _, b := range blobs {
		if !s.blobs.Has(b) {
			return nil, agent.Errorf(agent.NotFound, "there is no blob %.80q, which the %s names", b, noun)
		}
	}
	return data, nil
}

// Doc reads a document into v, which may be nil, and returns its revision. One that is not there is a NotFound error.
func (s *Store) Doc(ctx context.Context, space Docs, app agent.App, name string, v any) (rev int64, err error) {
	d := docAt{space, app, name}
	if err := d.check(); err != nil {
		return 0, err
	}
	err = s.view(ctx, func(snap snapshot) error {
		if err := appThere(snap, app); err != nil {
			return err
		}
		r, found, err := lookup(snap, d.key(), v)
		if err == nil && !found {
			if _, err = d.head(snap, snap); err == nil {
				err = d.notFound()
			}
		}
		rev = r.ord
		return err
	})
	return rev, err
}

// appThere returns a NotFound error unless the app is there: documents of one that was deleted may take a while to be removed.
func appThere(snap snapshot, app agent.App) error {
	if app == agent.DefaultApp {
		return nil
	}
	_, found, err := snap.get(recKey(apps, noApp, string(app)))
	if err == nil && !found {
		err = notFound("app", string(app))
	}
	return err
}

// DocsRev returns a number that is another after each change of the documents of a space of an app, but for Files: what was read from them can be
// kept as long as it stays the same. It grows, and is 0 while there was none.
func (s *Store) DocsRev(ctx context.Context, space Docs, app agent.App) (rev int64, err error) {
	d := docAt{space, app, "x"}
	if err := d.check(); err != nil {
		return 0, err
	}
	err = s.view(ctx, func(snap snapshot) error {
		if err := appThere(snap, app); err != nil {
			return err
		}
		h, err := d.head(snap, snap)
		rev = h.rev
		return err
	})
	return rev, err
}

// Docs calls each for one page of the documents whose names begin with prefix, in the order of names' bytes. data is JSON, and each's to
// keep; each must not change the store. next is the cursor of the page that follows, "" at the end; a page may be short. Pages are of
// different moments: a document that is put or deleted between two is seen or not, all others once.
func (s *Store) Docs(ctx context.Context, space Docs, app agent.App, prefix string, page agent.Page, each func(name string, rev int64, data []byte) error) (next string, err error) {
	limit, err := pageLimit(page)
	if err != nil {
		return "", err
	}
	if err := (docAt{space, app, "x/x"}).check(); err != nil {
		return "", err
	}
	if len(prefix) > MaxDocName {
		return "", agent.Errorf(agent.Invalid, "a prefix of %d bytes is longer than a name may be: %d", len(prefix), MaxDocName)
	}
	all := docPrefix(space, app)
	span := all + key(escaped(prefix))
	from, to := span, prefixEnd(span)
	if page.After != "" {
		last, err := parseNameCursor(span, page.After)
		if err != nil {
			return "", err
		}
		from = max(from, all+key(escaped(last+"\x00")))
	}
	err = s.view(ctx, func(snap snapshot) error {
		if err := appThere(snap, app); err != nil {
			return err
		}
		seen, bytes, last := 0, 0, ""
		return snap.each(from, to, false, func(k key, payload []byte) error {
			if seen == limit || bytes > maxReadBytes {
				next = nameCursor(span, last)
				return errStop
			}
			d, err := parseDocKey(k)
			if err != nil {
				return err
			}
			r, err := parse(k, payload, nil)
			if err != nil {
				return err
			}
			seen, bytes, last = seen+1, bytes+len(payload), d.name
			if err := each(d.name, r.ord, r.fields); err != nil {
				return err
			}
			return ctx.Err()
		})
	})
	if err != nil {
		return "", err
	}
	return next, nil
}

func parseDocKey(k key) (d docAt, err error) {
	parts := k.parts(prefixDoc)
	if len(parts) != 3 {
		return d, corrupt(k, "key names no document")
	}
	d = docAt{space: Docs(parts[0]), app: agent.App(parts[1])}
	if d.name, err = unescaped(parts[2]); err == nil {
		err = d.check()
	}
	if err != nil {
		return d, corrupt(k, "%v", err)
	}
	return d, nil
}

// A cursor by name is a check that it is of this list, and the name last seen.
func nameCursor(prefix key, name string) string {
	b := binary.BigEndian.AppendUint32(nil, checksum([]byte(prefix), []byte(name)))
	return base64.RawURLEncoding.EncodeToString(append(b, name...))
}

func parseNameCursor(prefix key, s string) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) < 4 || binary.BigEndian.Uint32(b) != checksum([]byte(prefix), b[4:]) {
		return "", badCursor()
	}
	return string(b[4:]), nil
}

// DeleteDoc deletes a document of that revision, or whatever its revision with AnyRev. One that is not there is a NotFound error, one of
// another revision a Conflict error.
func (s *Store) DeleteDoc(ctx context.Context, space Docs, app agent.App, name string, rev int64) error {
	d := docAt{space, app, name}
	if err := d.check(); err != nil {
		return err
	}
	return s.updateOf(ctx, app, func(t *tx) error {
		was, h, err := t.openDoc(d)
		if err == nil && was.ord == 0 {
			err = d.notFound()
		}
		if err == nil {
			err = d.checkRev(was, rev)
		}
		if err != nil {
			return err
		}
		return t.deleteDoc(d, was, h)
	})
}

// deleteDoc deletes a document that was read by openDoc.
func (t *tx) deleteDoc(d docAt, was row, h docHead) error {
	h.rev, h.count, h.bytes = h.rev+1, h.count-1, h.bytes-d.size(was)
	if h.count < 0 || h.bytes < h.count {
		return corrupt(d.headKey(), "it counts fewer documents than there are")
	}
	t.put(d.headKey(), h.encode())
	t.del(d.key())
	return nil
}
