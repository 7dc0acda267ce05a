package gateway_test

import (
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
)

// What a command-line agent says of its session is in the ledger, unless the key says of which session it is.
func TestSessionOfTheClient(t *testing.T) {
	for name, c := range map[string]struct {
		header, says string
		key, want    agent.SessionID
	}{
		"claude":       {header: "X-Claude-Code-Session-Id", says: "8f1e-11", want: "8f1e-11"},
		"codex":        {header: "Session-Id", says: "8f1e_22", want: "8f1e_22"},
		"opencode":     {header: "X-Session-Id", says: "ses_33", want: "ses_33"},
		"of the key":   {header: "Session-Id", says: "8f1e", key: "01JNPY4Z9V3T6Q0QW9GZ7X2ABC", want: "01JNPY4Z9V3T6Q0QW9GZ7X2ABC"},
		"one of ours":  {header: "Session-Id", says: "01JNPY4Z9V3T6Q0QW9GZ7X2ABC"},
		"no id":        {header: "Session-Id", says: "a b"},
		"too long":     {header: "Session-Id", says: strings.Repeat("x", 129)},
		"nothing said": {},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.provider("a", agent.MessageProtocol, good)
			q := request(agent.MessageProtocol, ask("a/m", false))
			q.Header.Set(c.header, c.says)
			out := &got{}
			if err := r.g.Serve(t.Context(), gateway.Caller{App: "default", Session: c.key}, q, out); err != nil || out.status != 200 {
				t.Fatal(err, out.status)
			}
			if len(r.rows) != 1 || r.rows[0].Session != c.want {
				t.Errorf("%+v", r.rows)
			}
		})
	}
}
