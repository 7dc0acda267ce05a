package abi

// StateValue is a value of key-value state: bytes with a media type. Of JSON, Text and Base64 one is set, and none stands for
// no bytes. Type may be left out when a value is set: it is then JSON, plain text or bytes by the field that is used. What
// comes back is in JSON when the type says so and the value is, in Text when it is text, else in Base64.
type StateValue struct {
	Type   string  `json:"type,omitempty"`
	JSON   Raw     `json:"json,omitempty"`
	Text   *string `json:"text,omitempty"`
	Base64 []byte  `json:"base64,omitempty"`
}

// StateGet asks for up to 128 keys, as of one moment.
type StateGet struct {
	Keys []string `json:"keys"`
}

// StateEntry is a key that is there.
type StateEntry struct {
	Key     string `json:"key"`
	Version int64  `json:"version"` // 1 or more; each commit gives the keys it sets a higher one
	StateValue
}

// StateEntries answers StateGet with those keys that are there, in the order they were asked in, and StateList with a page.
type StateEntries struct {
	Entries []StateEntry `json:"entries"`
	After   string       `json:"after,omitempty"` // for the StateList of the next page; empty at the end
}

// StateList asks for keys in the order of their UTF-8 bytes. Empty bounds mean none. A page has up to Limit entries (100 when
// 0, at most 1000), or fewer when their values are large.
type StateList struct {
	Prefix  string `json:"prefix,omitempty"`
	Start   string `json:"start,omitempty"` // first key
	End     string `json:"end,omitempty"`   // key before which the list ends
	Reverse bool   `json:"reverse,omitempty"`
	After   string `json:"after,omitempty"` // of the page before
	Limit   int    `json:"limit,omitempty"`
}

// StateEdit sets or deletes a key. If it names a version the key must have it, where 0 means that the key must not be there;
// else the call fails with kind conflict and changes nothing.
type StateEdit struct {
	Key string `json:"key"`
	If  *int64 `json:"if,omitempty"`
	StateValue
}

// StateBatch makes up to 128 edits in one commit, or none of them. Each If is held against the state before the commit.
type StateBatch struct {
	Edits []StateBatchEdit `json:"edits"`
}

// StateBatchEdit is an edit whose Do is "set", "delete" or "check", which changes nothing and needs an If.
type StateBatchEdit struct {
	Do string `json:"do"`
	StateEdit
}

// StateVersion answers an edit that is durable: the version of the keys that were set.
type StateVersion struct {
	Version int64 `json:"version"`
}
