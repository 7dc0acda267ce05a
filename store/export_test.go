package store

// Waiting returns how many callers wait in s's queue.
func Waiting(s *Store) int {
	s.commit.mu.Lock()
	defer s.commit.mu.Unlock()
	return s.commit.queue.n
}

// Forget has all read from the database again. Nobody commits meanwhile.
func Forget(s *Store) { s.commit.recent.forget() }

const RecentBytes = recentBytes

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

// FirstHead returns the head of an instance as it was written first: all of it JSON.
func FirstHead(fields []byte, batch [16]byte) []byte {
	return row{fields: fields, bodies: []body{{here: batch[:]}}}.encode()
}

// Rehead reads the head of an instance and writes it.
func Rehead(payload []byte) ([]byte, error) {
	h, err := parseInstHead("inst/x", payload)
	if err != nil {
		return nil, err
	}
	return h.encode(), nil
}
