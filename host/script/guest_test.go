package script

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/skep-dev/skep/host/script/guest"
)

func TestGuestChecksum(t *testing.T) {
	sum := sha256.Sum256(guest.Wasm)
	if got := hex.EncodeToString(sum[:]); got != guest.WasmSHA256 {
		t.Errorf("quickjs.wasm has the checksum %s, not %s", got, guest.WasmSHA256)
	}
}

// TestPreludeIsBuilt compares prelude.js with what its source builds, where npm has installed the tools for that.
func TestPreludeIsBuilt(t *testing.T) {
	if _, err := os.Stat(filepath.Join("guest", "node_modules", "esbuild")); err != nil {
		t.Skip("needs `npm ci` in host/script/guest")
	}
	cmd := exec.Command("node", "build.mjs", "--check")
	cmd.Dir = "guest"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
