// A module that makes Skep's own calls through the bare ABI, and that wants to be reseeded.
package main

import (
	"strconv"
	"strings"

	pdk "github.com/extism/go-pdk"

	"github.com/skep-dev/skep/abi"
)

//go:wasmimport extism:host/user skep_call
func skepCall(name, input uint64) uint64

//go:wasmimport extism:host/user skep_batch
func skepBatch(calls uint64) uint64

var seed uint64

func main() {}

//go:wasmexport skep_reseed
func reseed(s uint64) { seed = s }

//go:wasmexport seeded
func seeded() int32 {
	pdk.OutputString(strconv.FormatUint(seed, 16))
	return 0
}

// ask makes the call that its input names, "name body", and puts out the status and the reply.
//
//go:wasmexport ask
func ask() int32 {
	name, body, _ := strings.Cut(pdk.InputString(), " ")
	n, in := pdk.AllocateString(name), pdk.AllocateString(body)
	m := pdk.FindMemory(skepCall(n.Offset(), in.Offset()))
	b := m.ReadBytes()
	pdk.OutputString(strconv.Itoa(int(b[0])) + " " + string(b[1:]))
	return 0
}

// batch makes one call for each line of its input.
//
//go:wasmexport batch
func batch() int32 {
	var frames []byte
	for l := range strings.Lines(pdk.InputString()) {
		name, body, _ := strings.Cut(strings.TrimSuffix(l, "\n"), " ")
		var err error
		if frames, err = abi.AppendRequest(frames, abi.Request{Name: name, Input: []byte(body)}); err != nil {
			pdk.SetError(err)
			return 1
		}
	}
	in := pdk.AllocateBytes(frames)
	m := pdk.FindMemory(skepBatch(in.Offset()))
	replies, err := abi.DecodeReplies(m.ReadBytes())
	if err != nil {
		pdk.SetError(err)
		return 1
	}
	var out strings.Builder
	for _, r := range replies {
		out.WriteString(strconv.Itoa(int(r.Status)) + " " + string(r.Output) + "\n")
	}
	pdk.OutputString(out.String())
	return 0
}
