package memkv_test

import (
	"testing"

	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/kv/kvtest"
	"github.com/skep-dev/skep/store/memkv"
)

func TestConformance(t *testing.T) {
	kvtest.Run(t, func(*testing.T) kv.DB { return memkv.New() })
}
