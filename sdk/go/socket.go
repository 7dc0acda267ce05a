package skep

import (
	"encoding/json"
	"fmt"

	"github.com/skep-dev/skep/abi"
)

// Socket is a connection of a client with the instance. It stays open while the instance sleeps.
type Socket struct {
	ID     string
	Tags   []string
	URL    string      // that it was opened with; when it connects
	Header [][2]string // when it connects; credentials are not in it

	attachment abi.Raw
}

// SocketEvent is the input of the handlers OnConnect, OnSocketMessage and OnClose (or on_connect, onConnect, ...):
//
//	//go:wasmexport OnSocketMessage
//	func onSocketMessage() int32 {
//		return skep.Do(func(e skep.SocketEvent) (struct{}, error) {
//			return struct{}{}, skep.Broadcast(e.Data, &skep.BroadcastOptions{Except: []string{e.Socket.ID}})
//		})
//	}
type SocketEvent struct {
	Socket Socket
	Data   any    // of a message: a string, or a []byte of a binary one; else nil
	Code   int    // of a close (RFC 6455, section 7.4)
	Reason string // of a close
}

// Decode decodes the data of a message, which is JSON, into out.
func (e SocketEvent) Decode(out any) error {
	switch data := e.Data.(type) {
	case string:
		return json.Unmarshal([]byte(data), out)
	case []byte:
		return json.Unmarshal(data, out)
	}
	return fmt.Errorf("connection %s: the event has no data", e.Socket.ID)
}

// UnmarshalJSON reads an abi.SocketEvent.
func (e *SocketEvent) UnmarshalJSON(b []byte) error {
	var wire abi.SocketEvent
	if err := json.Unmarshal(b, &wire); err != nil {
		return err
	}
	*e = SocketEvent{Socket: socketOf(wire.Socket), Code: wire.Code, Reason: wire.Reason}
	switch {
	case wire.Text != nil:
		e.Data = *wire.Text
	case wire.Base64 != nil:
		e.Data = wire.Base64
	}
	return nil
}

// Sockets lists the connections that have the tag, or all when it is "".
func Sockets(tag string) ([]Socket, error) {
	var got abi.Sockets
	if err := ask(abi.CallSocketList, abi.SocketList{Tag: tag}, &got); err != nil {
		return nil, err
	}
	var list []Socket
	for _, s := range got.Sockets {
		list = append(list, socketOf(s))
	}
	return list, nil
}

// BroadcastOptions narrows a broadcast.
type BroadcastOptions struct {
	Tag    string   // to those that have it
	Except []string // not to those of these ids
}

// Broadcast sends a frame to all connections, or to those that o leaves. A string is a text frame, a []byte a binary one, and any other
// value a text frame of its JSON form. Frames leave when the turn has been committed.
func Broadcast(data any, o *BroadcastOptions) error {
	if o == nil {
		o = &BroadcastOptions{}
	}
	return send(abi.SocketSend{Tag: o.Tag, Except: o.Except}, data)
}

// Send sends a frame, as Broadcast does, to this connection. One that is gone is no error.
func (s Socket) Send(data any) error { return send(abi.SocketSend{To: []string{s.ID}}, data) }

func send(frame abi.SocketSend, data any) error {
	switch data := data.(type) {
	case string:
		frame.Text = &data
	case []byte:
		frame.Base64 = data
	default:
		b, err := json.Marshal(data)
		if err != nil {
			return fmt.Errorf("frame: %w", err)
		}
		text := string(b)
		frame.Text = &text
	}
	return ask(abi.CallSocketSend, frame, nil)
}

// Close closes the connection with a code and a reason (RFC 6455, section 7.4). A code of 0 means 1000.
func (s Socket) Close(code int, reason string) error {
	return ask(abi.CallSocketClose, abi.SocketClose{ID: s.ID, Code: code, Reason: reason}, nil)
}

// Attachment decodes what is kept with the connection into out, and leaves out as it is when there is nothing.
func (s Socket) Attachment(out any) error {
	if s.attachment == nil {
		return nil
	}
	if err := json.Unmarshal(s.attachment, out); err != nil {
		return fmt.Errorf("connection %s: attachment: %w", s.ID, err)
	}
	return nil
}

// Attach keeps a value of up to 16 KiB of JSON with the connection, in place of the one before.
func (s Socket) Attach(value any) error {
	b, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("connection %s: attachment: %w", s.ID, err)
	}
	return ask(abi.CallSocketAttach, abi.SocketAttach{ID: s.ID, Attachment: b}, nil)
}

// Tag gives the connection up to 10 tags, in place of those before.
func (s Socket) Tag(tags ...string) error {
	if tags == nil {
		tags = []string{}
	}
	return ask(abi.CallSocketAttach, abi.SocketAttach{ID: s.ID, Tags: &tags}, nil)
}

func socketOf(s abi.Socket) Socket {
	return Socket{ID: s.ID, Tags: s.Tags, URL: s.URL, Header: s.Header, attachment: s.Attachment}
}
