// A module as an author would write it with the public Extism PDK for Go. The tests build it with the standard compiler and
// run it both here and in Extism's own SDK.
package main

import (
	crand "crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	pdk "github.com/extism/go-pdk"
)

func main() {}

type greeting struct {
	Name   string   `json:"name"`
	Titles []string `json:"titles,omitempty"`
}

//go:wasmexport greet
func greet() int32 {
	var in greeting
	if err := pdk.InputJSON(&in); err != nil {
		pdk.SetError(fmt.Errorf("greet: %w", err))
		return 1
	}
	word, ok := pdk.GetConfig("word")
	if !ok {
		word = "Hello"
	}
	if err := pdk.OutputJSON(map[string]any{"text": word + ", " + strings.Join(append(in.Titles, in.Name), " ")}); err != nil {
		pdk.SetError(err)
		return 1
	}
	return 0
}

//go:wasmexport count
func count() int32 {
	for range 3 {
		pdk.SetVarInt("n", pdk.GetVarInt("n")+1)
	}
	pdk.SetVar("gone", []byte("x"))
	pdk.RemoveVar("gone")
	pdk.OutputString(fmt.Sprintf("%d %q", pdk.GetVarInt("n"), pdk.GetVar("gone")))
	return 0
}

//go:wasmexport logs
func logs() int32 {
	pdk.Log(pdk.LogTrace, "traced")
	pdk.Log(pdk.LogDebug, "debugged")
	pdk.Log(pdk.LogInfo, "told")
	pdk.Log(pdk.LogWarn, "warned, naïvely")
	pdk.Log(pdk.LogError, pdk.InputString())
	return 0
}

//go:wasmexport fetch
func fetch() int32 {
	var in struct {
		Method pdk.HTTPMethod
		URL    string
		Header map[string]string
		Body   string
	}
	if err := pdk.InputJSON(&in); err != nil {
		pdk.SetError(err)
		return 1
	}
	req := pdk.NewHTTPRequest(in.Method, in.URL)
	for k, v := range in.Header {
		req.SetHeader(k, v)
	}
	if in.Body != "" {
		req.SetBody([]byte(in.Body))
	}
	resp := req.Send()
	if err := pdk.OutputJSON(map[string]any{
		"status": resp.Status(), "body": string(resp.Body()), "header": resp.Headers(),
	}); err != nil {
		pdk.SetError(err)
		return 1
	}
	return 0
}

//go:wasmexport echo
func echo() int32 {
	pdk.Output(pdk.Input())
	return 0
}

//go:wasmexport fail
func fail() int32 {
	pdk.SetError(errors.New("no luck: " + pdk.InputString()))
	return 7
}

//go:wasmexport complain
func complain() int32 {
	pdk.SetError(errors.New("an error, yet the function returns 0"))
	return 0
}

//go:wasmexport crash
func crash() { panic("crashed: " + pdk.InputString()) }

//go:wasmexport leave
func leave() {
	pdk.OutputString("left early")
	os.Exit(len(pdk.Input()))
}

//go:wasmexport random
func random() int32 {
	b := make([]byte, 16)
	if _, err := crand.Read(b); err != nil {
		pdk.SetError(err)
		return 1
	}
	pdk.OutputString(hex.EncodeToString(b))
	return 0
}

//go:wasmexport clock
func clock() int32 {
	a := time.Now()
	time.Sleep(2 * time.Millisecond)
	b, err := json.Marshal([]int64{a.UnixNano(), int64(time.Since(a))})
	if err != nil {
		pdk.SetError(err)
		return 1
	}
	pdk.Output(b)
	return 0
}

//go:wasmexport doze
func doze() int32 {
	fmt.Println("dozing")
	time.Sleep(time.Hour)
	return 0
}

//go:wasmexport spin
func spin() int32 {
	fmt.Println("spinning")
	for i := uint32(1); i != 0; {
		i |= 1
	}
	return 0
}

//go:wasmexport hoard
func hoard() int32 {
	var kept [][]byte
	for {
		b := make([]byte, 1<<20)
		b[0] = 1
		kept = append(kept, b)
		if len(kept) > 1<<14 {
			return 0
		}
	}
}
