package sockets

import (
	"bytes"
	"encoding/json"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/internal/ws"
	"github.com/skep-dev/skep/store/instance"
)

// Show sends a connection the whole state, and from then on what becomes of it.
func (c *Conn) Show(s abi.Shared) {
	c.mu.Lock()
	c.mode = max(c.mode, whole)
	c.version = s.Version
	c.mu.Unlock()
	if s.Version > 0 {
		c.Push(State(s))
	}
}

// TakePatches has a connection be sent patches from now on, in place of whole states. has is the version that it has.
func (c *Conn) TakePatches(s abi.Shared, has int64) {
	c.mu.Lock()
	c.mode, c.version = patches, s.Version
	c.mu.Unlock()
	if has != s.Version && s.Version > 0 {
		c.Push(State(s))
	}
}

// Patches reports whether it takes patches.
func (c *Conn) Patches() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mode == patches
}

// moves notes that the connection is about to be told of a version, and returns how. It is silent when it knows it.
func (c *Conn) moves(version int64) mode {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mode == silent || c.version >= version {
		return silent
	}
	c.version = version
	return c.mode
}

// Changed tells the connections of an instance, but for the one named source, that its state is another. It is called in the order
// of changes.
func (h *Hub) Changed(id instance.ID, was, now abi.Shared, source string) {
	var full, patch ws.Frame
	for _, c := range h.Of(id) {
		how := c.moves(now.Version)
		if c.ID == source {
			continue
		}
		switch how {
		case patches:
			if patch.Data == nil {
				patch = change(was, now)
			}
			c.Push(patch)
		case whole:
			if full.Data == nil {
				full = State(now)
			}
			c.Push(full)
		}
	}
}

// change is what leads from one state to the next: a patch, unless the whole state is shorter or no patch says it.
func change(was, now abi.Shared) ws.Frame {
	p, ok := Diff(was.State, now.State)
	if !ok || was.Version == 0 || len(p) >= len(now.State) {
		return State(now)
	}
	return frame(struct {
		Type    string  `json:"type"`
		Version int64   `json:"version"`
		Base    int64   `json:"base"`
		Patch   abi.Raw `json:"patch"`
	}{typePatch, now.Version, was.Version, p})
}

// Diff returns the JSON merge patch (RFC 7396) that leads from one JSON value to another. It returns false when there is none: a merge
// patch cannot say that something becomes null.
func Diff(was, now []byte) (abi.Raw, bool) {
	a, isA := object(was)
	b, isB := object(now)
	if !isB {
		return now, true
	}
	if !isA {
		return now, !hasNull(now)
	}
	patch := map[string]json.RawMessage{}
	for k := range a {
		if _, there := b[k]; !there {
			patch[k] = json.RawMessage("null")
		}
	}
	for k, v := range b {
		old, there := a[k]
		switch {
		case there && bytes.Equal(old, v):
		case there:
			d, ok := Diff(old, v)
			if !ok || string(d) == "null" {
				return nil, false
			}
			if string(d) != "{}" || !isObject(old) {
				patch[k] = json.RawMessage(d)
			}
		case hasNull(v):
			return nil, false
		default:
			patch[k] = v
		}
	}
	out, err := json.Marshal(patch)
	return abi.Raw(out), err == nil
}

func isObject(b []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(b, " \t\r\n"), []byte("{")) }

func object(b []byte) (map[string]json.RawMessage, bool) {
	var m map[string]json.RawMessage
	if !isObject(b) || json.Unmarshal(b, &m) != nil {
		return nil, false
	}
	return m, true
}

// hasNull reports whether applying v as a patch would lose something: a null in an object, outside of arrays.
func hasNull(v []byte) bool {
	if string(bytes.TrimSpace(v)) == "null" {
		return true
	}
	m, ok := object(v)
	if !ok {
		return false
	}
	for _, member := range m {
		if hasNull(member) {
			return true
		}
	}
	return false
}
