package main

import (
	"reflect"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
)

func TestParseLimits(t *testing.T) {
	got, err := parseLimits([]string{"wall=1m", "cpu=1.5s", "memory=64MB", "host_calls=10", "log=2KB"})
	want := agent.Limits{Wall: time.Minute, CPU: 1500 * time.Millisecond, Memory: 64 << 20, HostCalls: 10, Log: 2 << 10}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if text := limitsText(got); text != "wall=1m0s, cpu=1.5s, memory=67108864, host_calls=10, log=2048" {
		t.Errorf("limitsText = %s", text)
	}
	for _, bad := range []string{"", "wall", "wall=soon", "memory=lots", "memory=9999999999GB", "wings=2"} {
		if _, err := parseLimits([]string{bad}); agent.KindOf(err) != agent.Invalid {
			t.Errorf("parseLimits(%q): got %v, want an invalid error", bad, err)
		}
	}
}

func TestEveryLimitCanBeSet(t *testing.T) {
	var l agent.Limits
	if got, want := len(limitFields(&l)), reflect.TypeFor[agent.Limits]().NumField(); got != want {
		t.Errorf("limitFields has %d fields, agent.Limits %d", got, want)
	}
}
