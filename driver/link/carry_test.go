package link

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

// A sandbox that is cut off while it sends is not taken for a disk that cannot be written to, and its end is an end.
func TestReceived(t *testing.T) {
	r, w := io.Pipe()
	go func() {
		_, _ = w.Write([]byte("half"))
		_ = w.CloseWithError(driver.ErrCut)
	}()
	got, err := io.ReadAll(received{r})
	if string(got) != "half" || agent.KindOf(err) != agent.Unavailable || !strings.Contains(err.Error(), "the sandbox was cut off") || !errors.Is(err, driver.ErrCut) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err = io.ReadAll(received{strings.NewReader("all")}); string(got) != "all" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
