package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	skep "github.com/skep-dev/skep/sdk/go"
)

// shop is an instance whose other agents work, but for those functions that fail as often as they say.
func shop(fails map[string]int) (host *skep.Fake, done *[]string) {
	done = new([]string)
	host = &skep.Fake{Self: skep.Identity{Agent: "shop", Key: "main", Run: "r"}}
	host.Answer = func(agent, function string, in []byte) ([]byte, error) {
		if fails[function] > 0 {
			fails[function]--
			return nil, errors.New(agent + " is down")
		}
		*done = append(*done, function)
		return []byte("c-1"), nil
	}
	return host, done
}

func stockOf(t *testing.T, host *skep.Fake, item string) (n int) {
	t.Helper()
	run := host.Self.Run
	host.Self.Run = ""
	defer func() { host.Self.Run = run }()
	if err := host.Call(left, item, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestFulfil(t *testing.T) {
	host, done := shop(map[string]int{"charge": 2})
	host.Deliver("approval", verdict{OK: true, By: "Ada"})
	var r receipt
	if err := host.Call(fulfil, order{Item: "honey", Count: 3, Cents: 250_00}, &r); err != nil {
		t.Fatal(err)
	}
	if r.Charge != "c-1" || r.Approved != "Ada" || !r.Shipped.Equal(host.Now) {
		t.Errorf("got %+v at %v", r, host.Now)
	}
	if want := []string{"charge", "ship"}; !slices.Equal(*done, want) {
		t.Errorf("done: %v", *done)
	}
	// What a run of days did is done once, however often its code is run.
	if err := host.Replay(fulfil); err != nil || len(*done) != 2 {
		t.Errorf("replayed: %v, %v", err, *done)
	}
	if n := stockOf(t, host, "honey"); n != 7 {
		t.Errorf("%d are left", n)
	}
	if len(host.Steps) != 5 || host.Steps[3].Name != "charge" || host.Steps[3].Attempt != 3 {
		t.Errorf("steps: %+v", host.Steps)
	}
}

func TestRollback(t *testing.T) {
	for _, tt := range []struct {
		name  string
		order order
		fails map[string]int
		event *verdict
		err   string
		done  []string
	}{
		{"turned down", order{Item: "honey", Count: 3, Cents: 250_00}, nil, &verdict{By: "Ada"}, "Ada turned the order down", nil},
		{"nobody cares", order{Item: "honey", Count: 3, Cents: 250_00}, nil, nil, "nobody approved", nil},
		{"no van", order{Item: "honey", Count: 3, Cents: 5_00}, map[string]int{"ship": 2}, nil, "warehouse is down", []string{"charge", "refund"}},
		{"no stock", order{Item: "honey", Count: 11, Cents: 5_00}, nil, nil, "only 10 of honey are left", nil},
		{"nothing ordered", order{}, nil, nil, "what is ordered?", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host, done := shop(tt.fails)
			if tt.event != nil {
				host.Deliver("approval", tt.event)
			}
			err := host.Call(fulfil, tt.order, nil)
			if err == nil || !strings.Contains(err.Error(), tt.err) || !slices.Equal(*done, tt.done) {
				t.Errorf("%v, done %v", err, *done)
			}
			if n := stockOf(t, host, "honey"); n != 10 {
				t.Errorf("%d are left", n)
			}
			if host.Now.Sub(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)) > 4*24*time.Hour {
				t.Errorf("it took until %v", host.Now)
			}
		})
	}
}
