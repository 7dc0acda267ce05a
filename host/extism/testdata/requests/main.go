// Makes the request that its input names, by the Go SDK.
package main

import (
	"errors"
	"fmt"

	skep "github.com/skep-dev/skep/sdk/go"
)

//go:wasmexport ask
func ask() int32 {
	return skep.Do(func(url string) (string, error) {
		r, err := skep.Fetch(skep.Request{
			Method: "POST", URL: url, Header: [][2]string{{"authorization", "Bearer " + skep.Secret("api")}, {"x-two", "2"}}, Body: []byte("b\x00d"),
		})
		var refused *skep.CallError
		if errors.As(err, &refused) {
			return "", fmt.Errorf("%s: %w", refused.Kind, err)
		}
		if err != nil {
			return "", err
		}
		found := 0
		if r.Get("X-A") == "1" {
			found = 1
		}
		return fmt.Sprintf("%d %d %s %d", r.Status, len(r.Body), r.Body, found), nil
	})
}

//go:wasmexport name
func name() int32 {
	return skep.Do(func(name string) (string, error) { return skep.Secret(name), nil })
}

func main() {}
