package abi

import (
	"slices"
	"testing"
)

func TestHandlers(t *testing.T) {
	for _, tt := range []struct {
		handler string
		want    []string
	}{
		{FunctionConnect, []string{"onConnect", "on_connect", "OnConnect"}},
		{FunctionMessage, []string{"onSocketMessage", "on_socket_message", "OnSocketMessage"}},
		{"onSocketMessage", []string{"onSocketMessage", "on_socket_message", "OnSocketMessage"}},
		{FunctionClose, []string{"onClose", "on_close", "OnClose"}},
		{"onAlarm", []string{"onAlarm", "on_alarm", "OnAlarm"}},
		{"onStart", []string{"onStart", "on_start", "OnStart"}},
		{"onUpgrade", []string{"onUpgrade", "on_upgrade", "OnUpgrade"}},
		{"remindMe", []string{"remindMe", "remind_me", "RemindMe"}},
		{"remind_me", []string{"remind_me", "remind_me", "Remind_me"}},
		{"", nil},
	} {
		if got := HandlerNames(tt.handler); !slices.Equal(got, tt.want) {
			t.Errorf("%q: got %v, want %v", tt.handler, got, tt.want)
		}
	}
	for _, h := range handlers {
		if !Handler(h) {
			t.Errorf("a client may call %s", h)
		}
		for _, name := range HandlerNames(h) {
			if got := HandlerOf(name); got != h {
				t.Errorf("%s is %q, want %s", name, got, h)
			}
		}
	}
	for _, name := range []string{"", "greet", "onMessage", "on_message", "ON_CLOSE", "onclose", FunctionClose} {
		if got := HandlerOf(name); got != "" {
			t.Errorf("%q is %q", name, got)
		}
	}
}
