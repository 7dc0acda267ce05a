// Command hello-go is a small agent in Go. See the README for how to push and call it.
package main

import (
	"errors"
	"strings"

	skep "github.com/skep-dev/skep/sdk/go"
)

type person struct {
	Name string `json:"name"`
}

type greeting struct {
	Text string `json:"text"`
}

//go:wasmexport greet
func greet() int32 {
	return skep.Do(func(p person) (greeting, error) {
		name := strings.TrimSpace(p.Name)
		if name == "" {
			return greeting{}, errors.New("whom shall I greet? give a name")
		}
		word, ok := skep.Config("word")
		if !ok {
			word = "Hello"
		}
		skep.Info("greeting %s", name)
		return greeting{Text: word + ", " + name + "!"}, nil
	})
}

// countdown emits an event for each number on its way to zero.
//
//go:wasmexport countdown
func countdown() int32 {
	return skep.Do(func(from int) (string, error) {
		for i := from; i > 0; i-- {
			if err := skep.Emit("tick", i); err != nil {
				return "", err
			}
		}
		return "liftoff", nil
	})
}

func main() {}
