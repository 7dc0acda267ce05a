package link

import (
	"context"
	"errors"
	"time"

	"github.com/coder/websocket"

	"github.com/skep-dev/skep/driver"
)

// push queues a message. It never waits: what is queued is bounded by maxCommands.
func (s *session) push(b []byte) { s.note(func() { s.queue = append(s.queue, b) }) }

// note changes what is to be written.
func (s *session) note(change func()) {
	s.mu.Lock()
	change()
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

const byeWithin = 5 * time.Second

// bye tells the driver that it is over, and ends the connection: soon, also when the driver does not listen.
func (s *session) bye(why error) {
	late := time.AfterFunc(byeWithin, s.cancel)
	context.AfterFunc(s.ctx, func() { late.Stop() })
	b, err := driver.Encode(&driver.Message{Kind: driver.Bye, Fault: driver.FaultOf(why)})
	s.note(func() {
		if err == nil {
			s.queue = append(s.queue, b)
		}
		s.ending = true
	})
}

// next takes what is to be written. An acknowledgement says all that those before it would.
func (s *session) next() (list [][]byte, ending bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, s.queue = s.queue, nil
	if s.ack > s.sent {
		list = append(list, encode(&driver.Message{Kind: driver.Ack, Seq: s.ack}))
		s.sent = s.ack
	}
	if s.beat {
		list = append(list, encode(&driver.Message{Kind: driver.Heartbeat}))
		s.beat = false
	}
	return list, s.ending
}

func encode(m *driver.Message) []byte {
	b, _ := driver.Encode(m) // small
	return b
}

// write writes what is queued. A driver that does not read for LostAfter is cut off.
func (s *session) write() error {
	for {
		list, ending := s.next()
		for _, b := range list {
			ctx, cancel := context.WithTimeout(s.ctx, s.l.o.LostAfter)
			err := s.ws.Write(ctx, websocket.MessageText, b)
			cancel()
			if err != nil {
				return err
			}
		}
		if ending {
			_ = s.ws.Close(websocket.StatusNormalClosure, "")
			return errors.New("closed")
		}
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return nil
		}
	}
}
