package store

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
)

const modelLogging = "log" // name of the document in modelSettings

// ModelLogging returns what an app keeps of calls to models: nothing, unless it was set.
func (s *Store) ModelLogging(ctx context.Context, app agent.App) (l agent.ModelLogging, err error) {
	if err := s.commit.dead(); err != nil {
		return l, err
	}
	version := s.ModelsVersion()
	if l, ok := s.logging.get(version, app); ok {
		return l, nil
	}
	if l, err = s.readModelLogging(ctx, app); err == nil {
		s.logging.put(version, app, l)
	}
	return l, err
}

func (s *Store) readModelLogging(ctx context.Context, app agent.App) (l agent.ModelLogging, err error) {
	l.Revision, err = s.Doc(ctx, modelSettings, app, modelLogging, &l)
	if agent.KindOf(err) == agent.NotFound {
		if _, err = s.DocsRev(ctx, modelSettings, app); err == nil { // the app is there
			return agent.ModelLogging{App: app}, nil
		}
	}
	return l, err
}

// PutModelLogging sets what an app keeps.
func (s *Store) PutModelLogging(ctx context.Context, l agent.ModelLogging) (agent.ModelLogging, error) {
	l.Revision = 0
	rev, err := s.PutDoc(ctx, modelSettings, l.App, modelLogging, AnyRev, l)
	l.Revision = rev
	return l, err
}

// PutModelLog keeps a call. Its texts are cut to what a document may have.
func (s *Store) PutModelLog(ctx context.Context, l agent.ModelLog) error {
	name := agent.LogName(l.Call)
	if name == "" {
		return agent.Errorf(agent.Invalid, "%.80q is not the id of a call", l.Call)
	}
	for { // escapes make a text longer than its bytes
		b, err := json.Marshal(&l)
		if err != nil {
			return err
		}
		if len(b) <= MaxDoc-1024 {
			break
		}
		longer := &l.Answer
		if len(l.Request) > len(l.Answer) {
			longer = &l.Request
		}
		if *longer == "" {
			return agent.Errorf(agent.Invalid, "the call %s is too large to be kept", l.Call)
		}
		*longer, l.Truncated = strings.ToValidUTF8((*longer)[:len(*longer)/2], ""), true
	}
	_, err := s.PutDoc(ctx, modelLogs, l.App, name, AnyRev, l)
	return err
}

// ModelLog returns a call.
func (s *Store) ModelLog(ctx context.Context, app agent.App, call string) (l agent.ModelLog, err error) {
	name := agent.LogName(call)
	if name == "" {
		return l, notFound(docSpaces[modelLogs].noun, call)
	}
	_, err = s.Doc(ctx, modelLogs, app, name, &l)
	if agent.KindOf(err) == agent.NotFound {
		err = notFound(docSpaces[modelLogs].noun, call)
	}
	return l, err
}

// ModelLogs lists calls, the newest first, without their texts.
func (s *Store) ModelLogs(ctx context.Context, app agent.App, page agent.Page) (list []agent.ModelLog, next string, err error) {
	next, err = s.Docs(ctx, modelLogs, app, "", page, func(_ string, _ int64, data []byte) error {
		var l agent.ModelLog
		if err := json.Unmarshal(data, &l); err != nil {
			return err
		}
		l.Request, l.Answer = "", ""
		list = append(list, l)
		return nil
	})
	return list, next, err
}

// SweepModelLogs deletes the calls of an app that are older than it keeps them, also when no model is asked any more.
func (s *Store) SweepModelLogs(ctx context.Context, app agent.App) error {
	l, err := s.ModelLogging(ctx, app)
	if err != nil {
		return err
	}
	return s.DropModelLogs(ctx, app, s.now().AddDate(0, 0, -l.Days))
}

// DropModelLogs deletes calls from before a time.
func (s *Store) DropModelLogs(ctx context.Context, app agent.App, before time.Time) error {
	from := nameCursor(docPrefix(modelLogs, app), agent.LogNameAt(before))
	for {
		var names []string
		_, err := s.Docs(ctx, modelLogs, app, "", agent.Page{After: from, Limit: agent.MaxPage}, func(name string, _ int64, _ []byte) error {
			names = append(names, name)
			return nil
		})
		if err != nil || len(names) == 0 {
			return err
		}
		err = s.update(ctx, func(t *tx) error {
			for _, name := range names {
				d := docAt{modelLogs, app, name}
				was, h, err := t.openDoc(d)
				if err == nil && was.ord != 0 {
					err = t.deleteDoc(d, was, h)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
}
