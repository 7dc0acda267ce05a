package socket

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
)

// told writes down what it is asked.
type told struct{ calls []string }

func (s *told) Send(_ context.Context, in abi.SocketSend) error {
	s.calls = append(s.calls, fmt.Sprintf("send %v %s", in.To, in.Tag))
	return nil
}

func (s *told) Close(_ context.Context, in abi.SocketClose) error {
	s.calls = append(s.calls, fmt.Sprintf("close %s %d %s", in.ID, in.Code, in.Reason))
	return nil
}

func (s *told) Attach(_ context.Context, in abi.SocketAttach) error {
	s.calls = append(s.calls, fmt.Sprintf("attach %s %s", in.ID, in.Attachment))
	return nil
}

func (s *told) List(context.Context, string) ([]abi.Socket, error) { return nil, nil }

func TestCalls(t *testing.T) {
	big := strings.Repeat("x", maxFrame+1)
	for _, tt := range []struct{ name, in, want string }{
		{abi.CallSocketSend, `{"to":["1"],"text":"a"}`, "send [1] "}, {abi.CallSocketSend, `{"tag":"t","base64":"AA=="}`, "send [] t"},
		{abi.CallSocketSend, `{"text":"` + big[1:] + `"}`, "send [] "}, {abi.CallSocketSend, `{"text":"` + big + `"}`, "exhausted"},
		{abi.CallSocketSend, `{"base64":"` + base64.StdEncoding.EncodeToString([]byte(big)) + `"}`, "exhausted"},
		{abi.CallSocketSend, `{"text":"a","base64":"AA=="}`, "invalid"}, {abi.CallSocketSend, `{"to":["1"],"tag":"t","text":"a"}`, "invalid"},
		{abi.CallSocketSend, `{"too":["1"]}`, "invalid"}, {abi.CallSocketSend, `{"to":["1"` + strings.Repeat(`,"1"`, maxNames) + `],"text":"a"}`, "invalid"},
		{abi.CallSocketClose, `{"id":"1"}`, "close 1 1000 "}, {abi.CallSocketClose, `{"id":"1","code":4321,"reason":"r"}`, "close 1 4321 r"},
		{abi.CallSocketClose, `{"id":"1","code":1005}`, "invalid"}, {abi.CallSocketClose, `{"id":"1","code":2000}`, "invalid"},
		{abi.CallSocketClose, `{"id":"1","code":5000}`, "invalid"}, {abi.CallSocketClose, `{"id":"1","reason":"` + strings.Repeat("r", maxReason+1) + `"}`, "invalid"},
		{abi.CallSocketAttach, `{"id":"1","attachment":{"a":1}}`, `attach 1 {"a":1}`},
	} {
		s, handlers := &told{}, map[string]grant.Handler{}
		Add(handlers, s)
		_, err := handlers[tt.name](t.Context(), []byte(tt.in))
		got := strings.Join(s.calls, ", ")
		if err != nil {
			got = agent.KindOf(err).String()
		}
		if got != tt.want {
			t.Errorf("%s %.80s: %s (%v), want %s", tt.name, tt.in, got, err, tt.want)
		}
	}
	handlers := map[string]grant.Handler{}
	Add(handlers, &told{})
	if out, err := handlers[abi.CallSocketList](t.Context(), []byte(`{}`)); err != nil || string(out) != `{"sockets":[]}` {
		t.Errorf("%s %v", out, err)
	}
}
