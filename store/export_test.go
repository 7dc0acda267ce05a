package store

// Waiting returns how many callers wait in s's queue.
func Waiting(s *Store) int {
	s.commit.mu.Lock()
	defer s.commit.mu.Unlock()
	return len(s.commit.queue)
}

var (
	DecodeRow = decodeRow
	Unseal    = unseal
	Seal      = seal

	Escaped   = escaped
	Unescaped = unescaped
	DueKey    = dueKey
	ParseDue  = parseDue

	EncodeEntry = encodeEntry
	DecodeEntry = decodeEntry
)

// Key lets tests name a key.
type Key = key

// Encode undoes DecodeRow.
func Encode(r row) []byte { return r.encode() }
