//go:build wasip1

// A guest in Go with something light to do and three things that keep a CPU busy. It brings encoding/json along.
package main

import (
	"crypto/sha256"
	"encoding/json"
)

func main() {}

var count uint32

//go:wasmexport bump
func bump() uint32 {
	count++
	return count
}

// hash hashes rounds blocks of 4 KiB.
//
//go:wasmexport hash
func hash(rounds uint32) uint32 {
	var block [4096]byte
	for range rounds {
		sum := sha256.Sum256(block[:])
		copy(block[:], sum[:])
	}
	return uint32(block[0])
}

type order struct {
	ID       int      `json:"id"`
	Customer string   `json:"customer"`
	Amount   float64  `json:"amount"`
	Tags     []string `json:"tags"`
}

// jsons encodes and decodes fifty records, rounds times.
//
//go:wasmexport jsons
func jsons(rounds uint32) uint32 {
	orders := make([]order, 50)
	for i := range orders {
		orders[i] = order{i, "ada", float64(i) * 7.25, []string{"new", "blue"}}
	}
	n := 0
	for range rounds {
		b, err := json.Marshal(orders)
		if err != nil {
			return 0
		}
		n += len(b)
		if json.Unmarshal(b, &orders) != nil {
			return 0
		}
	}
	return uint32(n)
}

const side = 96

var a, b, c [side][side]float64

// matmul multiplies two matrices, rounds times.
//
//go:wasmexport matmul
func matmul(rounds uint32) uint32 {
	for i := range side {
		for j := range side {
			a[i][j], b[i][j] = float64(i+j), float64(i-j)
		}
	}
	for range rounds {
		for i := range side {
			for j := range side {
				sum := 0.0
				for k := range side {
					sum += a[i][k] * b[k][j]
				}
				c[i][j] = sum
			}
		}
	}
	return uint32(c[side-1][side-1])
}
