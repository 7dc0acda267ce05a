package sqldb

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/skep-dev/skep/agent"
)

// Keys of an instance's state that hold its database. Keys that begin with NUL are the system's: authors neither see nor set them.
const (
	KeyPrefix = "\x00sql/"
	redoKey   = KeyPrefix + "redo" // of a flush that is too large for one commit
)

func pageKey(n int64) string { return fmt.Sprintf(KeyPrefix+"%08x", n) }
func redoPage(i int) string  { return fmt.Sprintf(redoKey+"/%08x", i) }

// atOnce is how many pages go into one edit, and so into one commit.
const atOnce = agent.MaxStateEdits - 1

// State is an instance's state within a turn. What one Edit changes is committed at once, what several change maybe in several
// commits, in their order.
type State interface {
	Get(ctx context.Context, keys ...string) ([]agent.StateEntry, error)
	Edit(ctx context.Context, bounds agent.StateGrant, edits ...agent.StateEdit) (version int64, err error)
}

// StatePages keeps pages in an instance's state, within bounds.
//
// The size is what the head of the first page says. A flush of up to 127 pages is one edit. A larger one is first written beside the
// pages, with a record of how many they are, then the record is marked complete, then the pages are written. Whoever reads the first
// page finds the record, and goes on from a complete one or drops one that is not; so a crash never leaves a part.
func StatePages(s State, bounds agent.StateGrant) Pages { return &statePages{s, bounds} }

type statePages struct {
	state  State
	bounds agent.StateGrant
}

func (p *statePages) Read(ctx context.Context, n int64) ([]byte, error) {
	keys := []string{pageKey(n)}
	if n == 0 {
		keys = append(keys, redoKey)
	}
	found, err := p.state.Get(ctx, keys...)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	if last := found[len(found)-1]; last.Key == redoKey {
		if err := p.recover(ctx, last.Value.Body); err != nil {
			return nil, err
		}
		return p.Read(ctx, n)
	}
	page, err := decode(found[0].Value.Body)
	if err != nil {
		return nil, damaged(fmt.Errorf("page %d: %w", n, err))
	}
	return page, nil
}

func (p *statePages) Write(ctx context.Context, n int64, page []byte) error {
	return p.edit(ctx, setPage(n, page))
}

func (p *statePages) Truncate(ctx context.Context, pages int64) error {
	head, err := p.Read(ctx, 0)
	if err != nil {
		return err
	}
	size, err := headSize(head)
	if err != nil {
		return err
	}
	for gone := range slices.Chunk(gonePages(pages, size), atOnce) {
		if err := p.edit(ctx, gone...); err != nil {
			return err
		}
	}
	return nil
}

func gonePages(from, to int64) (edits []agent.StateEdit) {
	for n := from; n < to; n++ {
		edits = append(edits, agent.StateEdit{Act: agent.StateDelete, Key: pageKey(n)})
	}
	return edits
}

// Apply implements Applier.
func (p *statePages) Apply(ctx context.Context, pages int64, changed map[int64][]byte) error {
	head, err := p.Read(ctx, 0)
	if err != nil {
		return err
	}
	size, err := headSize(head)
	if err != nil {
		return err
	}
	// Pages past the end stay nowhere: when they are in the way of one commit they are removed after it, as they are not read any more.
	gone := gonePages(pages, size)
	numbers := slices.Sorted(maps.Keys(changed))
	edits := make([]agent.StateEdit, 0, len(numbers)+len(gone))
	for _, n := range numbers {
		edits = append(edits, setPage(n, changed[n]))
	}
	if len(edits) > atOnce {
		if err := p.redo(ctx, numbers, changed); err != nil {
			return err
		}
		edits = nil
	}
	edits = append(edits, gone...)
	for some := range slices.Chunk(edits, atOnce) {
		if err := p.edit(ctx, some...); err != nil {
			return err
		}
	}
	return nil
}

// The states of a redo record: its first byte, before how many pages there are.
const (
	collecting = 1
	complete   = 2
)

func redoRecord(state byte, pages int) agent.StateEdit {
	return put(redoKey, binary.BigEndian.AppendUint32([]byte{state}, uint32(pages)))
}

func (p *statePages) redo(ctx context.Context, numbers []int64, changed map[int64][]byte) error {
	if err := p.edit(ctx, redoRecord(collecting, len(numbers))); err != nil {
		return err
	}
	for i := 0; i < len(numbers); {
		var edits []agent.StateEdit
		for ; i < len(numbers) && len(edits) < atOnce; i++ {
			body := binary.BigEndian.AppendUint32(nil, uint32(numbers[i]))
			edits = append(edits, put(redoPage(i), append(body, encode(changed[numbers[i]])...)))
		}
		if err := p.edit(ctx, edits...); err != nil {
			return err
		}
	}
	if err := p.edit(ctx, redoRecord(complete, len(numbers))); err != nil {
		return err
	}
	return p.recover(ctx, redoRecord(complete, len(numbers)).Value.Body)
}

// recover brings a redo record to its end.
func (p *statePages) recover(ctx context.Context, record []byte) error {
	if len(record) != 5 || record[0] != collecting && record[0] != complete {
		return damaged(errBadRedo)
	}
	pages := int(binary.BigEndian.Uint32(record[1:]))
	const some = atOnce / 2 // each page is set, and its copy removed
	for from := 0; from < pages; from += some {
		var keys []string
		var edits []agent.StateEdit
		for i := from; i < min(from+some, pages); i++ {
			keys = append(keys, redoPage(i))
			edits = append(edits, agent.StateEdit{Act: agent.StateDelete, Key: redoPage(i)})
		}
		if record[0] == complete {
			found, err := p.state.Get(ctx, keys...)
			if err != nil {
				return err
			}
			for _, e := range found { // those that are gone are written already
				if len(e.Value.Body) < 4 {
					return damaged(errBadRedo)
				}
				edits = append(edits, put(pageKey(int64(binary.BigEndian.Uint32(e.Value.Body))), e.Value.Body[4:]))
			}
		}
		if err := p.edit(ctx, edits...); err != nil {
			return err
		}
	}
	return p.edit(ctx, agent.StateEdit{Act: agent.StateDelete, Key: redoKey})
}

func (p *statePages) edit(ctx context.Context, edits ...agent.StateEdit) error {
	_, err := p.state.Edit(ctx, p.bounds, edits...)
	return err
}

func put(key string, body []byte) agent.StateEdit {
	return agent.StateEdit{Act: agent.StateSet, Key: key, Value: agent.Payload{Type: agent.TypeBytes, Body: body}}
}

func setPage(n int64, page []byte) agent.StateEdit { return put(pageKey(n), encode(page)) }
