package main

import (
	"net"
	"testing"
)

// Links that code makes begin with an address that leads to this server from elsewhere, or there are none.
func TestOwnURL(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:4747": "http://127.0.0.1:4747", "10.1.2.3:80": "http://10.1.2.3:80", "[::1]:4747": "http://[::1]:4747", "0.0.0.0:4747": "", "[::]:4747": "",
	} {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := ownURL(a); got != want {
			t.Errorf("%s: %q, want %q", addr, got, want)
		}
	}
}
