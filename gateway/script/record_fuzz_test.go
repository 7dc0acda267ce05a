package script

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
)

// FuzzRecord records what a provider may have answered. A stream is cut into frames that are all of it, and what was recorded is a script that can be read
// and told.
func FuzzRecord(f *testing.F) {
	const ask = `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}]}`
	f.Add([]byte(ask), 200, "application/json", []byte(`{"content":[{"type":"text","text":"a"}]}`))
	f.Add([]byte(ask), 200, "text/event-stream", []byte("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n: c\r\n\r\ndata: x"))
	f.Add([]byte(ask), 429, "text/plain", []byte("no"))
	f.Fuzz(func(t *testing.T, request []byte, status int, typ string, body []byte) {
		if all := strings.Join(frames(body), ""); all != string(body) {
			t.Fatalf("%q was cut into what is %q", body, all)
		}
		line, err := Record(Recorded{
			Protocol: agent.MessageProtocol, Op: wire.Generate, Path: "/v1/messages", Request: request, Status: status, Header: http.Header{"Content-Type": {typ}}, Body: body,
		}, codecs)
		if err != nil {
			return
		}
		var turn Turn
		if err := json.Unmarshal(line, &turn); err != nil || turn.Raw == nil || !strings.HasPrefix(typ, "text/event-stream") && string(turn.Raw.bytes()) != string(body) {
			t.Fatalf("%s: %v", line, err)
		}
		list, err := parse(line)
		if err != nil {
			if status >= 100 && status < 600 {
				t.Fatalf("%s cannot be read: %v", line, err)
			}
			return
		}
		if len(list) != 1 {
			t.Fatalf("%s is %d turns", line, len(list))
		}
	})
}
