package image

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
)

// TestFullDisk has a disk on which the package does not fit. npm itself says that all is well.
func TestFullDisk(t *testing.T) {
	(&registry{packages: map[string]published{"bee": bee([2]string{"package/large", strings.Repeat("honey", 200_000)})}}).start(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("needs a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := Spec{Cache: dir, Now: time.Now()}
	_, err := s.fetchPackage(t.Context(), "bee@1.0.0", cpu{npm: "x64"})
	if e := agent.AsError(err); e == nil || e.Kind != agent.Exhausted || !strings.Contains(e.Hint, "--cache") {
		t.Errorf("on a full disk: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("it left %s", left)
	}
}
