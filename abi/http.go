package abi

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// An exchange is an outbound request whose bodies travel in pieces. Its calls carry bytes as they are, in frames of
// little-endian numbers:
//
//	http.open   length u32 | HTTPOpen as JSON | body       -> length u32 | HTTPHead as JSON | begin of the body
//	http.write  id u32 | flags u8 | bytes                  -> empty, when the bytes are taken; HTTPLast ends the request's body
//	http.head   id u32                                     -> as http.open
//	http.read   id u32                                     -> flags u8 | bytes; HTTPLast says that the response's body ends with them
//	http.close  id u32                                     -> empty; gives up what goes on, and is no error when nothing does
//
// http.open sends a whole body and waits for the response's head. With HTTPOpen.Stream it returns at once, with nothing in
// the head but its id: the body follows by http.write, and http.head waits for the response, which may come before the body
// has been sent. An exchange whose HTTPHead says End is over, and its id means nothing.
const (
	CallHTTPOpen  = "http.open"
	CallHTTPWrite = "http.write"
	CallHTTPHead  = "http.head"
	CallHTTPRead  = "http.read"
	CallHTTPClose = "http.close"
)

// HTTPLast is the flag of the piece with which a body ends.
const HTTPLast = 1

// MaxHTTPChunk is the most bytes of a response's body that one answer brings.
const MaxHTTPChunk = 64 << 10

// MaxHTTPHead is the most bytes of an HTTPOpen or an HTTPHead.
const MaxHTTPHead = 1 << 20

// HTTPOpen begins an exchange.
type HTTPOpen struct {
	Method   string      `json:"method"`
	URL      string      `json:"url"`
	Header   [][2]string `json:"header,omitempty"`
	Redirect string      `json:"redirect,omitempty"` // follow (the default), error, or manual
	Stream   bool        `json:"stream,omitempty"`   // the body follows by http.write
	Length   *int64      `json:"length,omitempty"`   // of a body that follows, when it is known
}

// HTTPHead is what a response begins with.
type HTTPHead struct {
	ID         uint32      `json:"id"`
	Status     int         `json:"status,omitempty"`
	StatusText string      `json:"statusText,omitempty"`
	Header     [][2]string `json:"header,omitempty"`
	URL        string      `json:"url,omitempty"` // the last one, without a fragment
	Redirected bool        `json:"redirected,omitempty"`
	End        bool        `json:"end,omitempty"` // the bytes that follow are the whole body
}

var (
	errHTTPFrame = errors.New("abi: the frame of an http call is too short, or longer than it says")
	errHTTPFlags = errors.New("abi: the frame of an http call has flags that are not known")
)

// AppendHTTPHead appends the JSON form of head, which is an HTTPOpen or an HTTPHead, and body.
func AppendHTTPHead(b []byte, head any, body []byte) ([]byte, error) {
	text, err := json.Marshal(head)
	if err != nil {
		return nil, fmt.Errorf("abi: %w", err)
	}
	return AppendHTTPFrame(b, text, body), nil
}

// AppendHTTPFrame appends a head that is JSON already, and body.
func AppendHTTPFrame(b, head, body []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(head)))
	return append(append(b, head...), body...)
}

// SplitHTTPHead takes a frame of http.open apart. The parts share b.
func SplitHTTPHead(b []byte) (head, body []byte, err error) {
	head, body, err = sized(b)
	if err != nil || len(head) > MaxHTTPHead {
		return nil, nil, errHTTPFrame
	}
	return head, body, nil
}

// AppendHTTPWrite appends the frame of http.write.
func AppendHTTPWrite(b []byte, id uint32, last bool, piece []byte) []byte {
	b = append(binary.LittleEndian.AppendUint32(b, id), flags(last))
	return append(b, piece...)
}

// SplitHTTPWrite takes the frame of http.write apart. The piece shares b.
func SplitHTTPWrite(b []byte) (id uint32, last bool, piece []byte, err error) {
	if len(b) < 5 {
		return 0, false, nil, errHTTPFrame
	}
	last, piece, err = SplitHTTPRead(b[4:])
	return binary.LittleEndian.Uint32(b), last, piece, err
}

// AppendHTTPRead appends the answer of http.read.
func AppendHTTPRead(b []byte, last bool, piece []byte) []byte {
	return append(append(b, flags(last)), piece...)
}

// SplitHTTPRead takes the answer of http.read apart. The piece shares b.
func SplitHTTPRead(b []byte) (last bool, piece []byte, err error) {
	switch {
	case len(b) == 0:
		return false, nil, errHTTPFrame
	case b[0]&^HTTPLast != 0:
		return false, nil, errHTTPFlags
	}
	return b[0] == HTTPLast, b[1:], nil
}

// AppendHTTPID appends the input of http.head, http.read and http.close.
func AppendHTTPID(b []byte, id uint32) []byte { return binary.LittleEndian.AppendUint32(b, id) }

// SplitHTTPID reads it.
func SplitHTTPID(b []byte) (uint32, error) {
	if len(b) != 4 {
		return 0, errHTTPFrame
	}
	return binary.LittleEndian.Uint32(b), nil
}

func flags(last bool) byte {
	if last {
		return HTTPLast
	}
	return 0
}
