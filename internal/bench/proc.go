//go:build linux

package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuOf returns the CPU seconds that a process has used: its clock, as clock_getcpuclockid(3) names it.
func cpuOf(pid int) (float64, error) {
	const whole = 2 // the process, all threads, as it was scheduled
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|whole), &ts); err != nil {
		return 0, fmt.Errorf("the kernel's account of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()).Seconds(), nil
}

// threadCPU is the CPU time of the calling thread, to which the goroutine must be locked.
func threadCPU() time.Duration { return clock(unix.CLOCK_THREAD_CPUTIME_ID) }

// processCPU is the CPU time of this process: the collector's too.
func processCPU() time.Duration { return clock(unix.CLOCK_PROCESS_CPUTIME_ID) }

func clock(id int32) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// memory is how much a process has, in bytes.
type memory struct {
	private float64 // resident pages that are in no other process or mapping
	guests  float64 // of it: pages of images that guests wrote to, or are alone to look at
	heap    float64 // Go's heap in use and stacks; not all of it is resident
	tables  float64 // page tables, which are not among the private pages
}

// memoryNow collects garbage, gives back what is free, and measures.
func memoryNow() (m memory, err error) {
	for range 3 { // what has a finalizer, or lies in a pool, takes more than one
		runtime.GC()
	}
	debug.FreeOSMemory()
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	m.heap = float64(ms.HeapInuse + ms.StackInuse)
	image := false
	err = eachField("/proc/self/smaps", func(line, name string, bytes float64) {
		switch {
		case !strings.HasSuffix(name, ":"): // a mapping begins: its addresses, and at the end its file
			image = strings.Contains(line, "-image")
		case name == "Private_Dirty:", name == "Private_Clean:":
			m.private += bytes
			if image {
				m.guests += bytes
			}
		}
	})
	if err != nil {
		return m, err
	}
	err = eachField("/proc/self/status", func(_, name string, bytes float64) {
		if name == "VmPTE:" {
			m.tables = bytes
		}
	})
	return m, err
}

// eachField reads a file of the kernel that tells sizes as "name: 12 kB".
func eachField(file string, fn func(line, name string, bytes float64)) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kb, _ := strconv.ParseFloat(f[1], 64) // fields that are no sizes are not asked for
		fn(line, f[0], kb*1024)
	}
	return nil
}

// each is the difference to an earlier measurement, for each of n.
func (m memory) each(before memory, n int) memory {
	d := float64(n)
	return memory{
		private: (m.private - before.private) / d, guests: (m.guests - before.guests) / d, heap: (m.heap - before.heap) / d,
		tables: (m.tables - before.tables) / d,
	}
}

func (m memory) String() string {
	return fmt.Sprintf("%s pages of the guest, %s of Go (whose heap and stacks grew by %s, not all of it resident); page tables %s besides",
		Bytes.format(m.guests), Bytes.format(m.private-m.guests), Bytes.format(m.heap), Bytes.format(m.tables))
}
