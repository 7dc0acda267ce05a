package runtime

import (
	"encoding/json"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
)

// track counts the exchanges whose bodies the code has not read to their end, and the streams of models: they do not outlive the cell.
func (x *execution) track(name string, in []byte, f *flight) {
	if f.err != nil && name != abi.CallModelRead {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	switch name {
	case abi.CallModelOpen:
		var s abi.ModelStream
		decode(f.out, &s)
		x.open[s.ID] = true
	case abi.CallModelRead, abi.CallModelClose:
		var s abi.ModelStream
		var got struct{ Answer abi.Raw }
		decode(in, &s)
		decode(f.out, &got)
		if f.err != nil || got.Answer != nil || name == abi.CallModelClose {
			delete(x.open, s.ID)
		}
	case abi.CallHTTPOpen:
		if head, ok := openHead(f.out); ok {
			x.open[head.ID] = true
		}
	case abi.CallHTTPRead:
		if last, _, err := abi.SplitHTTPRead(f.out); err == nil && last && len(in) >= 4 {
			if id, err := abi.SplitHTTPID(in[:4]); err == nil {
				delete(x.open, id)
			}
		}
	}
}

func (x *execution) closed(in []byte) {
	if id, err := abi.SplitHTTPID(in); err == nil {
		x.mu.Lock()
		delete(x.open, id)
		x.mu.Unlock()
	}
}

// openHead returns the head of a response whose body goes on.
func openHead(out []byte) (head abi.HTTPHead, ok bool) {
	text, _, err := abi.SplitHTTPHead(out)
	if err != nil || json.Unmarshal(text, &head) != nil {
		return head, false
	}
	return head, !head.End && head.ID != 0
}

// whole reads the body of a response to its end, as there is no cell any more to do so.
func (x *execution) whole(out []byte) ([]byte, error) {
	head, goesOn := openHead(out)
	if !goesOn {
		return out, nil
	}
	_, body, err := abi.SplitHTTPHead(out)
	if err != nil {
		return nil, err
	}
	body = append([]byte(nil), body...)
	most := x.rec.agent.Limits.Or(x.r.opts.Limits).Input
	for last := false; !last; {
		var piece []byte
		piece, err = x.door(x.ctx, abi.CallHTTPRead, abi.AppendHTTPID(nil, head.ID))
		if err == nil {
			last, piece, err = abi.SplitHTTPRead(piece)
		}
		if body = append(body, piece...); err == nil && int64(len(body)) > most {
			err = agent.Exceeded(agent.LimitHTTP, "the response has more than %d bytes", most)
		}
		if err != nil {
			_, _ = x.door(x.ctx, abi.CallHTTPClose, abi.AppendHTTPID(nil, head.ID))
			return nil, err
		}
	}
	head.ID, head.End = 0, true
	return abi.AppendHTTPHead(nil, head, body)
}
