package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/durable"
)

// Answers of calls that have a name are kept with the instance, so that a call made again has no second effect.
const (
	keyOnce    = system + "once/"
	onceFor    = 24 * time.Hour
	onceSweep  = 16       // names that are looked at, to see whether their time is over, for each that is added
	onceOutput = 90 << 10 // the largest answer that is kept: in Base64, with what is said of it, it fits into one value
)

type answered struct {
	Call string    `json:"call"` // digest of method and input
	At   time.Time `json:"at"`
	Type string    `json:"type,omitempty"`
	Body []byte    `json:"body,omitempty"`
	Lost bool      `json:"lost,omitempty"` // the answer was not kept
}

func onceKey(name string) string {
	sum := sha256.Sum256([]byte(name))
	return keyOnce + hex.EncodeToString(sum[:16])
}

func callSum(w work) string {
	sum := sha256.Sum256([]byte(w.function + "\x00" + w.input.Type + "\x00" + string(w.input.Body)))
	return hex.EncodeToString(sum[:])
}

// madeBefore returns the answer of a call that was made under this name. One that has left its turn has no answer yet.
func (r *Runtime) madeBefore(ctx context.Context, t *durable.Turn, name string, w work) (agent.Payload, bool, error) {
	if _, is := r.underWay.Load(namedCall{t.ID(), name}); is {
		return agent.Payload{}, false, &agent.Error{
			Kind: agent.Conflict, After: time.Second, Msg: "the call that was made under this idempotency key is still under way", Hint: "make it again when that has ended",
		}
	}
	got, err := t.Get(ctx, onceKey(name))
	if err != nil || len(got) == 0 {
		return agent.Payload{}, false, err
	}
	var a answered
	if err := json.Unmarshal(got[0].Value.Body, &a); err != nil {
		return agent.Payload{}, false, agent.Wrap(agent.Internal, err, "the answer of a call that was made before cannot be read")
	}
	switch {
	case time.Since(a.At) >= onceFor:
		return agent.Payload{}, false, nil
	case a.Call != callSum(w):
		return agent.Payload{}, false, agent.Errorf(agent.Conflict, "another call was made under the idempotency key %.80q", name)
	case a.Lost:
		return agent.Payload{}, false, agent.Errorf(agent.Conflict, "the call was made before, and its answer was not kept: it was large, or the instance has much already")
	}
	return agent.Payload{Type: a.Type, Body: a.Body}, true, nil
}

// keepAnswer keeps the answer of a call under its name, in the call's own commit, and lets go of some whose time is over.
func (r *Runtime) keepAnswer(ctx context.Context, t *durable.Turn, name string, w work, out agent.Payload) error {
	a := answered{Call: callSum(w), At: time.Now().UTC(), Type: out.Type, Body: out.Body}
	// Whoever may call an instance cannot fill it with answers.
	if len(out.Body) > onceOutput || t.Info().State.Bytes > storageBounds(w.rec.agent.Grants).Bytes/2 {
		a.Type, a.Body, a.Lost = "", nil, true
	}
	key := onceKey(name)
	edits := []agent.StateEdit{{Act: agent.StateSet, Key: key, Value: agent.JSON(encode(a))}}
	// Names are spread evenly over their range, so looking behind this one comes by all of them in time.
	old, _, err := t.List(ctx, agent.StateRange{Prefix: keyOnce, After: key, Limit: onceSweep})
	if err != nil {
		return err
	}
	for _, e := range old {
		var was answered
		if json.Unmarshal(e.Value.Body, &was) != nil || time.Since(was.At) >= onceFor {
			edits = append(edits, agent.StateEdit{Act: agent.StateDelete, Key: e.Key})
		}
	}
	_, err = t.Edit(ctx, unbounded, edits...)
	return err
}
