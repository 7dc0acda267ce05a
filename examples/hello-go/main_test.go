package main

import (
	"testing"

	skep "github.com/skep-dev/skep/sdk/go"
)

func TestGreet(t *testing.T) {
	host := &skep.Fake{Config: map[string]string{"word": "Salve"}}
	var got greeting
	if err := host.Call(greet, person{Name: "Ada"}, &got); err != nil {
		t.Fatal(err)
	}
	if got.Text != "Salve, Ada!" {
		t.Errorf("greet says %q", got.Text)
	}
	if len(host.Logs) != 1 || host.Logs[0].Message != "greeting Ada" {
		t.Errorf("log = %v", host.Logs)
	}
	if err := host.Call(greet, person{}, nil); err == nil {
		t.Error("greeted nobody")
	}
}

func TestCountdown(t *testing.T) {
	host := &skep.Fake{}
	var got string
	if err := host.Call(countdown, 3, &got); err != nil {
		t.Fatal(err)
	}
	if got != "liftoff" || len(host.Events) != 3 || string(host.Events[0].Data) != "3" {
		t.Errorf("countdown returned %q and emitted %v", got, host.Events)
	}
}
