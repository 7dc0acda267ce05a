//go:build wasip1

package extism_test

// The guests in testdata, which go mod tidy does not see, are built with the real PDK.
import _ "github.com/extism/go-pdk"
