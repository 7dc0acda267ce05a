package script

import (
	"encoding/json"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/phrase"
)

// The kinds of entry, as main.js numbers them.
const (
	kindLoaded    = iota // (promise of the module's namespace)
	kindCall             // (function, form, input, config)
	kindFetch            // (head, body, config)
	kindSettle           // (id, how, value, what belongs to it)
	kindAlarm            // ()
	kindRejection        // (reason)
	kindBegin            // (config)
	kindReturned         // (value)
	kindThrown           // (reason)
	kindCount
)

// maxEntryArgs is how many arguments entry takes after the kind.
const maxEntryArgs = 4

// enter calls the prelude's entry function.
func (v *vm) enter(kind int, args ...uint64) { v.call("qjs_free_value", v.entered(kind, args...)) }

// entered calls the prelude's entry function and returns its value, which is the caller's to free.
func (v *vm) entered(kind int, args ...uint64) uint64 {
	v.putU32(v.h.argv, v.h.kinds[kind])
	for i, a := range args {
		v.putU32(v.h.argv+4*uint32(i+1), uint32(a))
	}
	return v.check(v.call("qjs_call", uint64(v.h.entry), uint64(v.h.undefined), uint64(len(args)+1), uint64(v.h.argv)))
}

// await takes what a call returned: a promise, which the cell then works for, or nothing when all is said.
func (v *vm) await(h uint64) {
	if v.err == nil && v.call("qjs_is_promise", h) != 0 {
		v.call("qjs_promise_mark_as_handled", h)
		v.forget(v.call("qjs_get_value_ptr", h))
		v.awaited = h
		return
	}
	v.call("qjs_free_value", h)
}

// deliver tells the prelude what became of the awaited promise. It reports whether that is known, and every tool that was called
// has answered.
func (v *vm) deliver() bool {
	if v.awaited == 0 {
		return false
	}
	kind := kindReturned
	switch v.call("qjs_promise_state", v.awaited) {
	case promisePending:
		return false
	case promiseRejected:
		kind = kindThrown
	}
	if v.lingers(kind == kindThrown) {
		return false
	}
	r := v.call("qjs_promise_result", v.awaited)
	v.call("qjs_free_value", v.awaited)
	v.awaited = 0
	v.enter(kind, r)
	v.call("qjs_free_value", r)
	return true
}

// The states of a promise, as the engine numbers them.
const (
	promisePending   = 0
	promiseFulfilled = 1
	promiseRejected  = 2
)

// pump runs the guest's jobs (promise reactions) until none is left, then reports rejections that nothing handled.
func (v *vm) pump() { v.cell.Together(v.runJobs) }

func (v *vm) runJobs() {
	for v.err == nil {
		r := int32(v.call("qjs_execute_pending_job"))
		if r > 0 {
			continue
		}
		if r < 0 {
			v.exception()
			return
		}
		if len(v.rejected) == 0 {
			return
		}
		v.reportRejected()
	}
}

// drive runs the guest until done says so. It is an error when nothing is left to wait for before.
func (v *vm) drive(done func() bool, stuck string) error {
	for {
		v.pump()
		switch {
		case v.err != nil:
			return v.err
		case v.isSuspended():
			return nil
		case v.deliver():
		case done():
			v.launch() // what was called and is not waited for
			return v.failure
		case v.next():
		case v.answered():
			return v.failure // work given to waitUntil that waits for nothing
		default:
			return &agent.Error{Kind: agent.Failed, Msg: stuck,
				Hint: "a promise is awaited that no call to the host and no timer will ever settle"}
		}
	}
}

func (v *vm) hasLoaded() bool { return v.loaded != nil || v.failure != nil && !v.lingers(true) }
func (v *vm) hasEnded() bool  { return v.ended && !v.holds() }

// loaded is what the prelude says of a module.
type loaded struct {
	Exports []string `json:"exports"`
	Fetch   bool     `json:"fetch"`
}

// evaluate runs the bundled module, up to the end of its top-level await.
func (v *vm) evaluate(b *Bundle) error {
	v.startModule(b)
	return v.loadModule()
}

func (v *vm) startModule(b *Bundle) {
	v.source = b.Map
	m := v.eval(b.Code, moduleName, evalModule)
	v.enter(kindLoaded, m)
	v.call("qjs_free_value", m)
}

func (v *vm) loadModule() error {
	v.loading = true
	defer func() { v.loading = false }()
	return v.drive(v.hasLoaded, "the module never finishes loading: its top-level await waits for nothing")
}

// Flags of qjs_eval.
const (
	evalGlobal = 0
	evalModule = 1
)

// eval runs code and returns its value; that of a module is a promise.
func (v *vm) eval(code []byte, name string, flags uint64) uint64 {
	ptr, n := v.copyIn(code)
	file, _ := v.copyIn([]byte(name))
	r := v.check(v.call("qjs_eval", ptr, uint64(n), file, flags))
	v.call("wasm_free", ptr)
	v.call("wasm_free", file)
	return r
}

// failure is an error as the prelude describes it.
type failure struct {
	Name    string `json:"name"`
	Message string `json:"message"`
	Stack   string `json:"stack"`
	Cause   string `json:"cause"`
	Hint    string `json:"hint"`
	Kind    string `json:"kind"` // of a SkepError
}

// setFailure takes what the author's code threw.
func (v *vm) setFailure(b []byte) {
	var f failure
	if err := json.Unmarshal(b, &f); err != nil {
		v.failure = agent.Wrap(agent.Failed, err, "the code failed with an error that cannot be read")
		return
	}
	if f.Name == "RangeError" && strings.Contains(f.Message, stackOverflow) {
		v.failure = stackExceeded()
		return
	}
	if f.Name == "InternalError" && f.Message == noMessage {
		v.failure = v.memoryExceeded()
		return
	}
	msg := f.Message
	if f.Name != "" {
		msg = strings.TrimSuffix(f.Name+": "+msg, ": ")
	}
	v.failure = &agent.Error{
		Kind: agent.Failed, Msg: mapText(v.source, clip(msg)), Pos: topOf(v.source, clip(f.Stack)),
		Stack: tidy(v.source, clip(f.Stack+f.news())), Hint: clip(f.Hint), Given: f.given(),
	}
}

// given is the kind that the code gave its error.
func (f *failure) given() (k agent.Kind) {
	if f.Kind == "" || k.UnmarshalText([]byte(f.Kind)) != nil {
		return agent.Internal
	}
	return k
}

// news returns the cause, unless it says only what the error says itself, as with the TypeError of a request that was refused.
func (f *failure) news() string {
	rest, same := strings.CutPrefix(f.Cause, "\nCaused by: SkepError: "+f.Message+"\n")
	if !same {
		return f.Cause
	}
	if i := strings.Index(rest, "\nCaused by: "); i >= 0 {
		return rest[i:]
	}
	return ""
}

// clip cuts what an author's code says of its failure to a length that is still read.
func clip(s string) string { return phrase.Clip(s, 16<<10) }

// rejected is a promise that was rejected while nothing handled it.
type rejected struct {
	id              uint64 // of the promise
	promise, reason uint64 // handles
}

// maxRejected bounds how many are kept until they are reported.
const maxRejected = 100

// rejection notes a promise that was rejected without a handler, or that got one after all. The handles are ours to free.
func (v *vm) rejection(stack []uint64) {
	r := rejected{promise: stack[0], reason: stack[1]}
	handled := uint32(stack[2]) != 0
	r.id = v.call("qjs_get_value_ptr", r.promise)
	if !handled && len(v.rejected) < maxRejected {
		v.rejected = append(v.rejected, r)
		return
	}
	v.free(r)
	if handled {
		v.forget(r.id)
	}
}

// forget drops what was noted of a promise.
func (v *vm) forget(id uint64) {
	for i, old := range v.rejected {
		if old.id == id {
			v.free(old)
			v.rejected = append(v.rejected[:i], v.rejected[i+1:]...)
			return
		}
	}
}

func (v *vm) free(r rejected) {
	v.call("qjs_free_value", r.promise)
	v.call("qjs_free_value", r.reason)
}

// reportRejected logs the rejections that were not handled by the end of the guest's jobs.
func (v *vm) reportRejected() {
	list := v.rejected
	v.rejected = nil
	for _, r := range list {
		v.enter(kindRejection, r.reason)
		v.free(r)
	}
}
