package instance

import (
	"time"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
)

// Check returns an Invalid error when the batch can never be committed to id, ErrTooBig when that is because of its size.
func (b *Batch) Check(id ID) error {
	if err := id.Check(); err != nil {
		return err
	}
	if b.ID == (BatchID{}) {
		return agent.Errorf(agent.Invalid, "a batch must have an id")
	}
	if n := b.Ops(); n > MaxOps {
		return tooBig("a commit of %d parts is too big: %d are allowed", n, MaxOps)
	}
	if n := b.Size(); n > MaxBytes {
		return tooBig("a commit of %d bytes is too big: %d are allowed", n, MaxBytes)
	}
	for _, check := range []func(ID) error{b.checkState, b.checkLogs, b.checkAlarms, b.checkMessages, b.checkChildren, b.checkRuns} {
		if err := check(id); err != nil {
			return err
		}
	}
	if s := b.Snapshot; s != nil {
		if len(s.Data) > MaxSnapshot {
			return tooBig("a snapshot's data has %d bytes: %d are allowed", len(s.Data), MaxSnapshot)
		}
		return checkBlobs(s.Blobs)
	}
	return nil
}

func (b *Batch) checkState(ID) error {
	for _, e := range b.State {
		if err := e.Check(); err != nil {
			return err
		}
	}
	return nil
}

func checkData(what string, b []byte) error {
	if len(b) > MaxData {
		return tooBig("%s has %d bytes: %d are allowed", what, len(b), MaxData)
	}
	return nil
}

func checkBlobs(ds []agent.Digest) error {
	if len(ds) > MaxBlobs {
		return tooBig("%d blobs are named: %d are allowed", len(ds), MaxBlobs)
	}
	for _, d := range ds {
		if d.Hex() == "" {
			return agent.Errorf(agent.Invalid, "%.80q is no digest of a blob", d)
		}
	}
	return nil
}

func (b *Batch) checkLogs(ID) error {
	for _, e := range b.Events {
		if err := e.Log.Check(); err != nil {
			return err
		}
		if e.Log.Run != "" {
			return agent.Errorf(agent.Invalid, "an event cannot go to a journal")
		}
	}
	for _, e := range b.Journal {
		if err := Journal(e.Run).Check(); err != nil {
			return err
		}
		if err := checkData("an entry of a journal", e.Data); err != nil {
			return err
		}
		if err := checkBlobs(e.Blobs); err != nil {
			return err
		}
	}
	return nil
}

var lastTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

func (b *Batch) checkAlarms(ID) error {
	for _, a := range b.Alarms {
		switch {
		case a.Name == "" || len(a.Name) > MaxAlarmName || !utf8.ValidString(a.Name):
			return agent.Errorf(agent.Invalid, "alarm name %.80q must be 1 to %d bytes of UTF-8", a.Name, MaxAlarmName)
		case !a.Clear && (a.At.Before(time.Unix(0, 0)) || a.At.After(lastTime)):
			return agent.Errorf(agent.Invalid, "alarm %.80q is set for %s, which is not between the years 1970 and 9999", a.Name, a.At)
		}
		if err := checkData("an alarm", a.Data); err != nil {
			return err
		}
	}
	return nil
}

func (b *Batch) checkMessages(id ID) error {
	for _, m := range b.Outbox {
		if err := peer(id, m.To); err != nil {
			return err
		}
		if err := checkData("a message", m.Data); err != nil {
			return err
		}
	}
	for _, marks := range [][]Mark{b.Sent, b.Inbox} {
		for _, m := range marks {
			if err := peer(id, m.Peer); err != nil {
				return err
			}
			if m.Seq < 1 {
				return agent.Errorf(agent.Invalid, "messages are numbered from 1, not %d", m.Seq)
			}
		}
	}
	return nil
}

func (b *Batch) checkChildren(id ID) error {
	for _, c := range b.Children {
		if err := peer(id, c.ID); err != nil {
			return err
		}
		if c.ID == id {
			return agent.Errorf(agent.Invalid, "an instance cannot be its own child")
		}
	}
	return nil
}

func (b *Batch) checkRuns(id ID) error {
	for _, e := range b.Runs {
		r, s := e.Run, e.Session
		made := e.From == agent.UnknownStatus
		switch {
		case r.App != id.App:
			return agent.Errorf(agent.Invalid, "run %.80q is of app %.80q, not of %s", r.ID, r.App, id.App)
		case !isPart(string(r.ID), 64), made && !isPart(string(r.Session), 64):
			return agent.Errorf(agent.Invalid, "a run is named by its id and made in a session, not by %.80q in %.80q", r.ID, r.Session)
		case made && r.Status.Terminal():
			return agent.Errorf(agent.Invalid, "run %s cannot be made with the status %s", r.ID, r.Status)
		case !made && (e.From.Terminal() || r.Status == agent.UnknownStatus):
			return agent.Errorf(agent.Invalid, "run %s cannot go from the status %s to %s", r.ID, e.From, r.Status)
		case len(r.Asks) > agent.MaxAsks:
			return agent.Errorf(agent.Invalid, "run %s has %d open questions: %d are allowed", r.ID, len(r.Asks), agent.MaxAsks)
		case !made && s != nil:
			return agent.Errorf(agent.Invalid, "the session of run %s cannot be made: the run is there", r.ID)
		case s != nil && (s.App != id.App || s.ID != r.Session || s.Key != id.Key):
			return agent.Errorf(agent.Invalid, "session %.80q of run %s is not named as the run says, or not with the instance", s.ID, r.ID)
		}
	}
	return nil
}

// peer checks an id that an instance deals with.
func peer(id, other ID) error {
	if err := other.Check(); err != nil {
		return err
	}
	if other.App != id.App {
		return agent.Errorf(agent.Invalid, "app %s is another than %s: an instance deals with those of its own app only", other.App, id.App)
	}
	return nil
}

// When returns an alarm's time as it is kept: whole milliseconds, never earlier than t.
func When(t time.Time) time.Time {
	ms := t.Truncate(time.Millisecond)
	if ms.Before(t) {
		ms = ms.Add(time.Millisecond)
	}
	return ms.UTC().Round(0)
}
