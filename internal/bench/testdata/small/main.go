//go:build wasip1

// The smallest guest that Go makes.
package main

func main() {}

var count uint32

//go:wasmexport bump
func bump() uint32 {
	count++
	return count
}
