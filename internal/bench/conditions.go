//go:build linux

package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// conditions say where and when figures were made.
type conditions struct {
	Quick       bool    `json:"quick,omitempty"`
	CPUs        int     `json:"cpus"`
	Go          string  `json:"go"`
	Kernel      string  `json:"kernel"`
	Wazero      string  `json:"wazero"`
	Seconds     float64 `json:"seconds"`
	LoadBefore  string  `json:"load_before"`
	LoadAfter   string  `json:"load_after"`
	PeerVersion string  `json:"peer"`
}

func conditionsNow(quick bool, began time.Time, before string) conditions {
	c := conditions{
		Quick: quick, CPUs: runtime.NumCPU(), Go: runtime.Version(), Kernel: kernel(), Seconds: time.Since(began).Seconds(),
		LoadBefore: before, LoadAfter: loadAverage(), PeerVersion: peerVersion,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == "github.com/tetratelabs/wazero" {
				c.Wazero = d.Version
			}
		}
	}
	return c
}

func (c conditions) String() string {
	s := fmt.Sprintf("%d CPUs, Linux %s, %s, wazero %s, workerd %s; %.0f s; load average %s before, %s after",
		c.CPUs, c.Kernel, c.Go, c.Wazero, c.PeerVersion, c.Seconds, c.LoadBefore, c.LoadAfter)
	if c.Quick {
		s += "; a quick run, not for figures to cite"
	}
	return s
}

func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "?"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// loadAverage is that of the last minute.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	one, _, _ := strings.Cut(string(b), " ")
	return one
}
