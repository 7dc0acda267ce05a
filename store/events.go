package store

import (
	"encoding/json"
	"fmt"

	"github.com/skep-dev/skep/agent"
)

// prepared is an event that only lacks its number, which its key says: encoded, its large data in a blob.
type prepared struct {
	event   agent.Event
	payload []byte
}

// Where events together are too much for one commit, data above smallBody goes to blobs.
const (
	smallBody  = 4 << 10
	manyEvents = groupBytes / 2 // bytes
)

func (s *Store) prepare(events []agent.Event) ([]prepared, error) {
	if len(events) > MaxAppend {
		return nil, agent.Errorf(agent.Invalid, "%d events are too many for one commit: %d are allowed", len(events), MaxAppend)
	}
	total := 0
	for _, e := range events {
		total += len(e.Data)
	}
	limit := maxBody
	if total > manyEvents {
		limit = smallBody
	}
	out := make([]prepared, 0, len(events))
	for _, e := range events {
		e.Data = append(json.RawMessage(nil), e.Data...)
		p, err := s.prepareOne(e, limit)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// prepareOne keeps data of up to limit bytes in the record.
func (s *Store) prepareOne(e agent.Event, limit int) (prepared, error) {
	e.Time = s.stampOr(e.Time)
	data, err := s.stow(e.Data, limit)
	if err != nil {
		return prepared{}, err
	}
	bare := e
	bare.Seq, bare.Data = 0, nil
	fields, err := json.Marshal(bare)
	if err != nil {
		return prepared{}, agent.Wrap(agent.Invalid, err, fmt.Sprintf("an event of kind %s cannot be written as JSON", e.Kind))
	}
	return prepared{e, row{fields: fields, bodies: []body{data}}.encode()}, nil
}

func (s *Store) decodeEvent(k key, seq int64, payload []byte) (e agent.Event, err error) {
	r, err := parse(k, payload, &e)
	if err != nil {
		return agent.Event{}, err
	}
	data, err := s.fetch(k, r, 0)
	e.Seq, e.Data = seq, data
	return e, err
}
