package store

import (
	"context"

	"github.com/skep-dev/skep/agent"
)

func docGoneKey(app agent.App) key { return prefixDocGone + key(app) }

// DropDocs removes the documents of deleted apps, in commits of bounded size, and returns when there are none left. When it is stopped,
// the next call goes on. Nobody can reach those documents meanwhile.
func (s *Store) DropDocs(ctx context.Context) error {
	for {
		var app agent.App
		err := s.view(ctx, func(snap snapshot) error {
			return snap.each(prefixDocGone, prefixEnd(prefixDocGone), false, func(k key, _ []byte) error {
				app = agent.App(k[len(prefixDocGone):])
				return errStop
			})
		})
		if err != nil || app == "" {
			return err
		}
		if err := s.dropDocs(ctx, app); err != nil {
			return err
		}
	}
}

// dropDocs removes the documents of an app, if it was deleted.
func (s *Store) dropDocs(ctx context.Context, app agent.App) error {
	for {
		var gone bool
		var ks []key
		err := s.view(ctx, func(snap snapshot) (err error) {
			if _, gone, err = snap.get(docGoneKey(app)); err != nil || !gone {
				return err
			}
			ks, err = docKeys(snap, app)
			return err
		})
		if err != nil || !gone {
			return err
		}
		if err := s.update(ctx, func(t *tx) error { return t.dropDocs(app, ks) }); err != nil {
			return err
		}
	}
}

// docKeys returns what is left of an app's documents, as much as one commit removes: heads come after what they count.
func docKeys(snap snapshot, app agent.App) (ks []key, err error) {
	bytes := 0
	for _, prefix := range []string{prefixDoc, prefixDocHead} {
		for space := range docSpaces {
			from := join(prefix, string(space), string(app), "")
			err := snap.each(from, prefixEnd(from), false, func(k key, payload []byte) error {
				if len(ks) >= dropKeys || bytes > dropBytes {
					return errStop
				}
				if prefix == prefixDoc && space == modelKeys { // what finds it goes with it
					var rec modelKeyRecord
					if _, err := parse(k, payload, &rec); err != nil {
						return err
					}
					ks = append(ks, modelKeyKey(rec.Hash))
				}
				ks, bytes = append(ks, k), bytes+len(k)
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return ks, nil
}

// dropDocs removes what is at ks of a deleted app, and the mark when that is nothing.
func (t *tx) dropDocs(app agent.App, ks []key) error {
	_, gone, err := t.get(docGoneKey(app))
	if err != nil || !gone { // another was quicker, and the app may have been made anew
		return err
	}
	if len(ks) == 0 {
		t.del(docGoneKey(app))
	}
	for _, k := range ks {
		t.del(k)
	}
	return nil
}

// noDocsGone refuses to make an app whose name has documents of one that was deleted.
func (t *tx) noDocsGone(app agent.App) error {
	_, gone, err := t.get(docGoneKey(app))
	if err == nil && gone {
		err = agent.Errorf(agent.Conflict, "app %q was deleted a moment ago, and is not quite gone: try again", app)
	}
	return err
}
