package host

import (
	"sync"

	"github.com/skep-dev/skep/host/script"
)

// keptBundles is how many bundles are kept, and maxKeptBundle how large one may be for that.
const (
	keptBundles   = 64
	maxKeptBundle = 256 << 10
)

// bundles remembers the newest bundles: a script that is checked is run right after that, and again when it goes on after a wait.
type bundles struct {
	mu    sync.Mutex
	byKey map[key]*script.Bundle
	order []key // oldest first
}

func (b *bundles) get(k key) *script.Bundle {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byKey[k]
}

func (b *bundles) put(k key, made *script.Bundle) {
	if len(made.Code)+made.Map.Size() > maxKeptBundle {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byKey == nil {
		b.byKey = map[key]*script.Bundle{}
	}
	if b.byKey[k] != nil {
		return
	}
	if len(b.order) == keptBundles {
		delete(b.byKey, b.order[0])
		b.order = b.order[1:]
	}
	b.byKey[k] = made
	b.order = append(b.order, k)
}
