package ledger

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"

	"github.com/skep-dev/skep/agent"
)

// A record is the length of its body, a checksum and the body. Numbers in the head are little endian. The checksum is the
// CRC-32C of body, segment number and offset, so a record that was moved or left over is none.
//
//	record = uint32 length, uint32 checksum, body
//	body   = 1, field...                                 usage event
//	       | 2, uint64 offset                            what stands before offset was synced
//	       | 3, uint64 events, int64 first, int64 last   end of a segment: how many events, and their times in nanoseconds
//	       | 4, field...                                 beginning of a call of a model, as an event that is yet to be
//	field  = uvarint number<<1, uvarint value            a zero value is left out
//	       | uvarint number<<1|1, uvarint length, bytes
//
// A reader skips fields that it does not know: a later Skep may add some.
const (
	recordHead = 8
	maxBody    = 16 << 10

	recordEvent byte = 1
	recordSync  byte = 2
	recordEnd   byte = 3
	recordBegin byte = 4
)

// The fields of an event. Their numbers never change.
const (
	fieldTime = iota + 1 // nanoseconds since 1970
	fieldKind
	fieldApp
	fieldAgent
	fieldSession
	fieldRun
	fieldFunction
	fieldOutcome
	fieldCPU
	fieldWall
	fieldMemory
	fieldIn
	fieldOut
	fieldSent
	fieldReceived
	fieldHostCalls
	fieldFuel

	// Of calls of models.
	fieldCall
	fieldProvider
	fieldModel
	fieldRoute
	fieldProtocol
	fieldKey
	fieldSecret
	fieldUser
	fieldAttempt
	fieldFault
	fieldSource
	fieldInput
	fieldCacheRead
	fieldCacheWrite
	fieldCacheWrite1h
	fieldAudioIn
	fieldOutput
	fieldReasoning
	fieldAudioOut
	fieldSearches
	fieldMicro // and 1: a price of nothing is not the same as none
	fieldPrices
	fieldFirst
	fieldRaw // left out when it is longer than agent.MaxRawUsage
)

// maxText bounds a text of an event, in bytes. What is longer is cut.
const maxText = 512

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errRecord = errors.New("ledger: not a record")

// record is a decoded one.
type record struct {
	kind  byte
	event agent.UsageEvent // of recordEvent and recordBegin
	sync  int64            // of recordSync
	end   ending           // of recordEnd
}

// ending is what the last record of a segment tells of it.
type ending struct {
	events      int64
	first, last int64 // least and greatest times; 0 when there are no events
}

func (e *ending) note(t time.Time) {
	at := t.UnixNano()
	if e.events == 0 {
		e.first, e.last = at, at
	}
	e.events++
	e.first, e.last = min(e.first, at), max(e.last, at)
}

// appendEvent appends a record of a kind that has an event, whose head is to be filled in by place.
func appendEvent(b []byte, kind byte, e *agent.UsageEvent) []byte {
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0, kind)
	num := func(field int, v int64) { b = appendNumber(b, field, v) }
	text := func(field int, s string) { b = appendText(b, field, s, maxText) }
	num(fieldTime, e.Time.UnixNano())
	num(fieldKind, int64(e.Kind))
	text(fieldApp, string(e.App))
	text(fieldAgent, e.Agent)
	text(fieldSession, string(e.Session))
	text(fieldRun, string(e.Run))
	text(fieldFunction, e.Function)
	num(fieldOutcome, int64(e.Outcome))
	num(fieldCPU, int64(e.CPU))
	num(fieldWall, int64(e.Wall))
	num(fieldMemory, e.Memory)
	num(fieldIn, e.In)
	num(fieldOut, e.Out)
	num(fieldSent, e.Sent)
	num(fieldReceived, e.Received)
	num(fieldHostCalls, e.HostCalls)
	num(fieldFuel, e.Fuel)
	if e.Model != nil {
		b = appendModel(b, e.Model)
	}
	return b
}

func appendNumber(b []byte, field int, v int64) []byte {
	if v == 0 {
		return b
	}
	return binary.AppendUvarint(append(b, byte(field<<1)), uint64(v))
}

func appendText(b []byte, field int, s string, most int) []byte {
	if s == "" {
		return b
	}
	s = s[:min(len(s), most)]
	return append(binary.AppendUvarint(append(b, byte(field<<1|1)), uint64(len(s))), s...)
}

func appendSync(b []byte, offset int64) []byte {
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0, recordSync)
	return binary.LittleEndian.AppendUint64(b, uint64(offset))
}

func appendEnd(b []byte, e ending) []byte {
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0, recordEnd)
	for _, n := range [...]int64{e.events, e.first, e.last} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// place fills in the head of the one record that b is, for where it is written.
func place(b []byte, segment, offset int64) {
	binary.LittleEndian.PutUint32(b, uint32(len(b)-recordHead))
	binary.LittleEndian.PutUint32(b[4:], checksum(b[recordHead:], segment, offset))
}

func checksum(body []byte, segment, offset int64) uint32 {
	var at [16]byte
	binary.LittleEndian.PutUint64(at[:], uint64(segment))
	binary.LittleEndian.PutUint64(at[8:], uint64(offset))
	return crc32.Update(crc32.Checksum(body, castagnoli), castagnoli, at[:])
}

// cut returns the body of the record that b begins with and that stands at offset, and whether it is whole.
func cut(b []byte, segment, offset int64) (body []byte, ok bool) {
	if len(b) < recordHead {
		return nil, false
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n == 0 || n > maxBody || n > int64(len(b)-recordHead) {
		return nil, false
	}
	body = b[recordHead : recordHead+n]
	return body, binary.LittleEndian.Uint32(b[4:]) == checksum(body, segment, offset)
}

// decode reads a body whose checksum is right. What it returns shares no memory with b.
func decode(b []byte) (r record, err error) {
	if len(b) == 0 {
		return r, errRecord
	}
	r.kind, b = b[0], b[1:]
	switch r.kind {
	case recordEvent, recordBegin:
		return r, decodeEvent(b, &r.event)
	case recordSync:
		if len(b) != 8 {
			return r, errRecord
		}
		r.sync = int64(binary.LittleEndian.Uint64(b))
		return r, nil
	case recordEnd:
		if len(b) != 24 {
			return r, errRecord
		}
		at := func(i int) int64 { return int64(binary.LittleEndian.Uint64(b[i:])) }
		r.end = ending{at(0), at(8), at(16)}
		return r, nil
	}
	return r, errRecord
}

func decodeEvent(b []byte, e *agent.UsageEvent) error {
	e.Time = time.Unix(0, 0).UTC()
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 {
			return errRecord
		}
		v, m := binary.Uvarint(b[n:])
		if m <= 0 {
			return errRecord
		}
		b = b[n+m:]
		if tag&1 == 0 {
			setNumber(e, tag>>1, int64(v))
			continue
		}
		if v > uint64(len(b)) {
			return errRecord
		}
		setText(e, tag>>1, string(b[:v]))
		b = b[v:]
	}
	if e.Kind == agent.UseModel {
		modelOf(e)
	}
	return nil
}

func setNumber(e *agent.UsageEvent, field uint64, v int64) {
	switch field {
	case fieldTime:
		e.Time = time.Unix(0, v).UTC()
	case fieldKind:
		e.Kind = agent.UsageKind(v)
	case fieldOutcome:
		e.Outcome = agent.Outcome(v)
	case fieldCPU:
		e.CPU = time.Duration(v)
	case fieldWall:
		e.Wall = time.Duration(v)
	case fieldMemory:
		e.Memory = v
	case fieldIn:
		e.In = v
	case fieldOut:
		e.Out = v
	case fieldSent:
		e.Sent = v
	case fieldReceived:
		e.Received = v
	case fieldHostCalls:
		e.HostCalls = v
	case fieldFuel:
		e.Fuel = v
	default:
		setModelNumber(e, field, v)
	}
}

func setText(e *agent.UsageEvent, field uint64, s string) {
	switch field {
	case fieldApp:
		e.App = agent.App(s)
	case fieldAgent:
		e.Agent = s
	case fieldSession:
		e.Session = agent.SessionID(s)
	case fieldRun:
		e.Run = agent.RunID(s)
	case fieldFunction:
		e.Function = s
	default:
		setModelText(e, field, s)
	}
}
