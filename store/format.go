package store

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/kv"
)

// Format is the number of the key layout and the record encodings. A store of an older format is brought up to date when
// it is opened; one of a newer format is refused.
const Format = 1

// formatRecord is the one record whose encoding never changes.
type formatRecord struct {
	Format int    `json:"format"`
	Needs  string `json:"needs"` // the first Skep that reads this format, for the message of one that does not
}

const formatNeeds = "0.1.0"

// openFormat checks the format of db, or writes it when db is empty, and returns the number of the newest commit.
func openFormat(ctx context.Context, db kv.DB) (commit int64, err error) {
	empty := true
	err = db.View(ctx, func(r kv.Reader) error {
		s := snapshot{r}
		if err := s.Scan(nil, nil, false, func(_, _ []byte) error { empty = false; return errStop }); !empty {
			err = checkFormat(s)
			if err == nil {
				commit, err = commitNumber(s)
			}
			return err
		} else if err != nil {
			return err
		}
		return nil
	})
	if err != nil || !empty {
		return commit, dbError(err)
	}
	b, err := json.Marshal(formatRecord{Format, formatNeeds})
	if err != nil {
		return 0, err
	}
	return 0, dbError(db.Apply(ctx, []kv.Change{
		{Key: []byte(keyFormat), Value: seal(keyFormat, b)},
		{Key: []byte(keyCommit), Value: seal(keyCommit, binary.BigEndian.AppendUint64(nil, 0))},
	}))
}

func checkFormat(g getter) error {
	b, found, err := g.get(keyFormat)
	if err != nil {
		return err
	}
	if !found {
		return corrupt(keyFormat, "record is missing, so this is not a store of Skep or its beginning was lost")
	}
	var f formatRecord
	if err := json.Unmarshal(b, &f); err != nil {
		return corrupt(keyFormat, "%v", err)
	}
	if f.Format > Format {
		return &agent.Error{
			Kind: agent.Unavailable,
			Msg:  fmt.Sprintf("the data directory has format %d; this Skep reads formats up to %d", f.Format, Format),
			Err:  errors.New("newer format"),
			Hint: "run Skep " + f.Needs + " or newer, or restore a backup made before the upgrade",
		}
	}
	if f.Format < 1 {
		return corrupt(keyFormat, "format %d was never written", f.Format)
	}
	return nil
}
