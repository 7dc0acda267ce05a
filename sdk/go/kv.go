package skep

import (
	"encoding/json"
	"fmt"

	"github.com/skep-dev/skep/abi"
)

// KV is ordered key-value state. The zero value is the agent's own, which must have been granted: all cells of the agent share it, it
// is gone when the agent is deleted, and what an edit did is durable when it returns. The state of an instance is Storage.
//
// Values travel by the rules of Do. A key has a version, which rises with each commit to the state and is never used again; the
// version 0 stands for a key that is not there. An edit that wants another version than the key has fails with a CallError of
// kind "conflict" and changes nothing.
type KV struct{ storage bool }

// Storage is the state of the instance whose code runs: nobody else reads or writes it, and it needs no grant. Edits are part of the
// turn: later reads of it see them, they are durable before anything that depends on them leaves the instance, and a turn that fails
// is undone.
var Storage = KV{storage: true}

func (k KV) call(state, storage string) string {
	if k.storage {
		return storage
	}
	return state
}

// Get decodes the value of a key into out, unless that is nil, and returns its version: 0 when it is not there.
func (k KV) Get(key string, out any) (version int64, err error) {
	var got abi.StateEntries
	if err := ask(k.call(abi.CallStateGet, abi.CallStorageGet), abi.StateGet{Keys: []string{key}}, &got); err != nil || len(got.Entries) == 0 {
		return 0, err
	}
	e := KVEntry{got.Entries[0]}
	return e.Version(), e.Decode(out)
}

// Set sets a key and returns its new version.
func (k KV) Set(key string, value any) (version int64, err error) { return k.edit(KVSet(key, value)) }

// SetIf sets a key that has that version, and returns its new one.
func (k KV) SetIf(key string, version int64, value any) (now int64, err error) {
	return k.edit(KVSet(key, value).IfVersion(version))
}

// Delete deletes a key. One that is not there is no error.
func (k KV) Delete(key string) error {
	_, err := k.edit(KVDelete(key))
	return err
}

// Batch makes up to 128 edits in one commit, or none of them, and returns the version of the keys that were set. Versions are
// held against the state as it was before.
func (k KV) Batch(edits ...KVEdit) (version int64, err error) { return k.edit(edits...) }

func (k KV) edit(edits ...KVEdit) (int64, error) {
	var in abi.StateBatch
	for _, e := range edits {
		if e.err != nil {
			return 0, e.err
		}
		in.Edits = append(in.Edits, e.wire)
	}
	var out abi.StateVersion
	err := ask(k.call(abi.CallStateBatch, abi.CallStorageBatch), in, &out)
	return out.Version, err
}

// List returns a page of entries in the order of keys, and what to set After to for the next one: "" at the end.
func (k KV) List(r KVRange) (entries []KVEntry, after string, err error) {
	var got abi.StateEntries
	if err := ask(k.call(abi.CallStateList, abi.CallStorageList), abi.StateList(r), &got); err != nil {
		return nil, "", err
	}
	for _, e := range got.Entries {
		entries = append(entries, KVEntry{e})
	}
	return entries, got.After, nil
}

// KVRange says which keys are meant: all bounds that are not empty must hold. A page has up to Limit entries, 100 when it is 0
// and at most 1000, or fewer when they are large.
type KVRange struct {
	Prefix  string `json:"prefix,omitempty"`
	Start   string `json:"start,omitempty"` // the first key
	End     string `json:"end,omitempty"`   // the key before which the range ends
	Reverse bool   `json:"reverse,omitempty"`
	After   string `json:"after,omitempty"`
	Limit   int    `json:"limit,omitempty"`
}

// KVEntry is a key that is there.
type KVEntry struct{ e abi.StateEntry }

func (e KVEntry) Key() string    { return e.e.Key }
func (e KVEntry) Version() int64 { return e.e.Version }

// Decode decodes the value into out, by the rules of Do.
func (e KVEntry) Decode(out any) error {
	if out == nil {
		return nil
	}
	b := e.e.Base64
	switch {
	case e.e.JSON != nil:
		b = e.e.JSON
	case e.e.Text != nil:
		b = []byte(*e.e.Text)
	}
	if err := decode(b, out); err != nil {
		return fmt.Errorf("state key %q: %w", e.e.Key, err)
	}
	return nil
}

// KVEdit is one edit of a Batch.
type KVEdit struct {
	wire abi.StateBatchEdit
	err  error
}

// KVSet sets a key.
func KVSet(key string, value any) KVEdit {
	e := KVEdit{wire: abi.StateBatchEdit{Do: "set", StateEdit: abi.StateEdit{Key: key}}}
	b, err := encode(value)
	if err != nil {
		e.err = fmt.Errorf("state key %q: %w", key, err)
	}
	v := &e.wire.StateValue
	switch v.Type = typeOf(value); value.(type) {
	case string:
		s := string(b)
		v.Text = &s
	case []byte:
		v.Base64 = b
	default:
		v.JSON = b
	}
	return e
}

// KVDelete deletes a key.
func KVDelete(key string) KVEdit {
	return KVEdit{wire: abi.StateBatchEdit{Do: "delete", StateEdit: abi.StateEdit{Key: key}}}
}

// KVCheck changes nothing, and makes the batch fail when the key has another version.
func KVCheck(key string, version int64) KVEdit {
	e := KVEdit{wire: abi.StateBatchEdit{Do: "check", StateEdit: abi.StateEdit{Key: key}}}
	return e.IfVersion(version)
}

// IfVersion makes the batch fail when the edit's key has another version.
func (e KVEdit) IfVersion(version int64) KVEdit {
	e.wire.If = &version
	return e
}

// ask makes one call whose input and output are JSON. No input is none at all, and a nil out throws the answer away.
func ask(name string, in, out any) error {
	var b []byte
	if in != nil {
		var err error
		if b, err = json.Marshal(in); err != nil {
			return err
		}
	}
	b, err := reply(hostCall(name, b))
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("the host's answer to %s: %w", name, err)
	}
	return nil
}
