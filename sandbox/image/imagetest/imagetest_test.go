package imagetest_test

import (
	"testing"

	"github.com/skep-dev/skep/sandbox/image/imagetest"
)

func TestToolsTwice(t *testing.T) {
	first := imagetest.Tools(t)
	if again := imagetest.Tools(t); again != first {
		t.Errorf("the second time it is %s, and was %s", again, first)
	}
}
