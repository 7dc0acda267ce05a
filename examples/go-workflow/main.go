// Command go-workflow fulfils an order: it reserves and charges, asks a person about large sums, waits until goods have left, and takes
// back what it did when something fails. See the README for how to push and run it.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	skep "github.com/skep-dev/skep/sdk/go"
)

type order struct {
	Item  string  `json:"item"`
	Count int     `json:"count"`
	Cents int     `json:"cents"`
	Days  float64 `json:"days,omitempty"` // until the van comes; 1 unless given
}

type verdict struct {
	OK bool   `json:"ok"`
	By string `json:"by"`
}

type receipt struct {
	Charge   string    `json:"charge"`
	Approved string    `json:"approved,omitempty"`
	Shipped  time.Time `json:"shipped"`
}

// large is the sum from which a person is asked.
const large = 100_00

// fulfil is a run: it may take days, and survives whatever happens to the server meanwhile.
//
//go:wasmexport fulfil
func fulfil() int32 {
	return skep.Do(func(o order) (r receipt, err error) {
		if o.Item == "" || o.Count < 1 {
			return r, errors.New("what is ordered? give an item and a count")
		}
		_, err = skep.Step("reserve", &skep.StepOptions[int]{
			Rollback: func(count int) error { return stock(o.Item, count) },
		}, func() (int, error) { return o.Count, stock(o.Item, -o.Count) })
		if err != nil {
			return r, err
		}
		if o.Cents >= large {
			if r.Approved, err = approval(o); err != nil {
				return r, err
			}
		}
		r.Charge, err = skep.Step("charge", &skep.StepOptions[string]{
			Retry:    skep.Retry{Attempts: 4, Delay: time.Minute, MaxDelay: time.Hour},
			Rollback: func(id string) error { return skep.Agent("payments").Call("refund", id, nil) },
		}, func() (id string, err error) { return id, skep.Agent("payments").Call("charge", o.Cents, &id) })
		if err != nil {
			return r, err
		}
		if err := skep.Sleep(time.Duration(cmp.Or(o.Days, 1) * 24 * float64(time.Hour))); err != nil {
			return r, err
		}
		_, err = skep.Step("ship", &skep.StepOptions[struct{}]{Retry: skep.Retry{Attempts: 2}}, func() (none struct{}, err error) {
			return none, skep.Agent("warehouse").Call("ship", o, nil)
		})
		r.Shipped = skep.Now().UTC()
		return r, err
	})
}

// approval waits for a person, for three days at most.
func approval(o order) (by string, err error) {
	if err := skep.Emit("approval.wanted", o); err != nil {
		return "", err
	}
	v, err := skep.WaitForEvent[verdict]("approval", 3*24*time.Hour)
	switch {
	case errors.Is(err, skep.ErrTimedOut):
		return "", errors.New("nobody approved the order in time")
	case err != nil:
		return "", err
	case !v.OK:
		return "", fmt.Errorf("%s turned the order down", v.By)
	}
	return v.By, nil
}

// stock changes how much of an item there is. Too little is an error that no further attempt would mend.
func stock(item string, change int) error {
	left := 10
	if _, err := skep.Storage.Get("stock/"+item, &left); err != nil {
		return err
	}
	if left+change < 0 {
		return skep.Permanent(fmt.Errorf("only %d of %s are left", left, item))
	}
	_, err := skep.Storage.Set("stock/"+item, left+change)
	return err
}

// left is a turn: it answers at once, also while runs of the same shop wait.
//
//go:wasmexport left
func left() int32 {
	return skep.Do(func(item string) (int, error) {
		n := 10
		_, err := skep.Storage.Get("stock/"+item, &n)
		return n, err
	})
}

func main() {}
