package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// dropProgram has the kernel forget which pages of the program's file this process has used so far. Most were needed only to start; what is needed again comes
// back from the file, which the kernel has in memory anyway. Only mappings that nothing was ever written to are dropped, so nothing can be lost.
func dropProgram() error {
	file, err := os.Executable()
	if err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/smaps") // proc(5)
	if err != nil {
		return err
	}
	for _, m := range cleanMappings(maps, file) {
		if _, _, no := syscall.Syscall(syscall.SYS_MADVISE, m.from, m.to-m.from, syscall.MADV_DONTNEED); no != 0 {
			return os.NewSyscallError("madvise", no)
		}
	}
	return nil
}

type mapping struct{ from, to uintptr }

// cleanMappings returns those of file that are private, cannot be written to and have no page of their own.
func cleanMappings(smaps []byte, file string) (clean []mapping) {
	var now mapping
	var ours bool
	lines := bufio.NewScanner(bytes.NewReader(smaps))
	for lines.Scan() {
		line := lines.Text()
		var from, to uintptr
		var mode string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); n == 3 {
			now, ours = mapping{from, to}, strings.HasSuffix(line, " "+file) && strings.HasPrefix(mode, "r-") && strings.HasSuffix(mode, "p")
			continue
		}
		if kB, ok := strings.CutPrefix(line, "Anonymous:"); ok && ours && strings.TrimSpace(kB) == "0 kB" {
			clean = append(clean, now)
		}
	}
	return clean
}
