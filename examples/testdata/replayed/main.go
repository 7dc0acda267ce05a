// Command replayed is an agent whose runs depend on what Go draws at random: they proceed only where that is the same again.
package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	skep "github.com/skep-dev/skep/sdk/go"
)

// drawn is what a life of a run saw.
type drawn struct {
	Map    []int    `json:"map"`    // in the order of range
	Rand   []uint64 `json:"rand"`   // of the top-level functions
	Select string   `json:"select"` // which of the ready channels
}

func draw() (d drawn) {
	m := map[int]bool{}
	for i := range 50 {
		m[i] = true
	}
	for i := range m {
		d.Map = append(d.Map, i)
	}
	a, b := make(chan int), make(chan int)
	close(a)
	close(b)
	for range 40 {
		d.Rand = append(d.Rand, rand.Uint64()>>20)
		select {
		case <-a:
			d.Select += "a"
		case <-b:
			d.Select += "b"
		}
	}
	return d
}

// order writes what it draws in the order of a map, waits, and returns what it drew before and after.
//
//go:wasmexport order
func order() int32 {
	return skep.Do(func(struct{}) (out [2]drawn, err error) {
		out[0] = draw()
		if _, err := skep.Step("mark", nil, func() (struct{}, error) { return struct{}{}, skep.Emit("drawn", nil) }); err != nil {
			return out, err
		}
		if _, err := skep.Storage.Set("time", skep.Now().UnixNano()); err != nil { // where marks and events move no clock, this repeats
			return out, err
		}
		for _, i := range out[0].Map {
			if _, err := skep.Storage.Set("drawn/"+strconv.Itoa(i), out[0].Rand[i%40]); err != nil {
				return out, err
			}
		}
		if _, err := skep.WaitForEvent[struct{}]("proceed", 0); err != nil {
			return out, err
		}
		out[1] = draw()
		return out, nil
	})
}

// parts makes four calls at once: one that must not be made twice, and three of instances.
//
//go:wasmexport parts
func parts() int32 {
	return skep.Do(func(keys []string) ([]string, error) {
		out := make([]string, len(keys)+1)
		calls := []*skep.Call{{Agent: "services", Function: "charge", In: 7, Out: &out[0]}}
		for i, key := range keys {
			calls = append(calls, &skep.Call{Agent: "services", Key: key, Function: "ask", In: "/" + key, Out: &out[i+1]})
		}
		if err := skep.Batch(calls...); err != nil {
			return out, err
		}
		skep.Info("%s", fmt.Sprint(out))
		return out, nil
	})
}

func main() {}
