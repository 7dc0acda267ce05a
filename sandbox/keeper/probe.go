package keeper

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
)

// How long it is taken for true what a provider has said of itself; one that is not ready is asked again sooner.
const (
	probeFor    = time.Minute
	notReadyFor = 2 * time.Second
)

// probes are what providers have said of themselves.
type probes struct {
	asking lines // by provider: who asks, as others want the same answer

	mu sync.Mutex
	by map[string]probed
}

type probed struct {
	what agent.SandboxProvider
	at   time.Time
}

// Providers says what the providers of this server have, as of a minute ago at most.
func (k *Keeper) Providers(ctx context.Context) []agent.SandboxProvider {
	list := make([]agent.SandboxProvider, 0, len(k.o.Providers))
	for _, p := range k.o.Providers {
		list = append(list, k.probed(ctx, p))
	}
	return list
}

func (k *Keeper) probed(ctx context.Context, p sandbox.Provider) agent.SandboxProvider {
	done, err := k.probe.asking.wait(ctx, "what "+p.Name()+" has")
	if err != nil {
		return agent.SandboxProvider{Name: p.Name(), Error: err.Error()}
	}
	defer done()
	k.probe.mu.Lock()
	was, ok := k.probe.by[p.Name()]
	k.probe.mu.Unlock()
	if age := k.now().Sub(was.at); ok && (age < notReadyFor || age < probeFor && was.what.Ready) {
		return was.what
	}
	asked, cancel := context.WithTimeout(ctx, quick)
	defer cancel()
	what := p.Probe(asked)
	if ctx.Err() != nil { // it says nothing of the provider
		return what
	}
	k.probe.mu.Lock()
	defer k.probe.mu.Unlock()
	if k.probe.by == nil {
		k.probe.by = map[string]probed{}
	}
	k.probe.by[p.Name()] = probed{what, k.now()}
	return what
}

// provider returns a provider by its name; the first one for "".
func (k *Keeper) provider(name string) (sandbox.Provider, error) {
	if name == "" {
		return k.o.Providers[0], nil
	}
	var names []string
	for _, p := range k.o.Providers {
		if p.Name() == name {
			return p, nil
		}
		names = append(names, p.Name())
	}
	return nil, &agent.Error{
		Kind: agent.Invalid, Msg: fmt.Sprintf("%s: this server has no provider %q; it has %s", agent.SandboxUnavailable, name, strings.Join(names, ", ")), Err: sandbox.ErrUnavailable,
		Hint: "skep sandbox providers shows what each has",
	}
}

// Needs lists the capabilities that every box needs, whatever its environment requires, unless Options.Accept has them.
func Needs() []string {
	return []string{sandbox.NoNetwork, sandbox.SocketMount, sandbox.ReadOnlyRoot, sandbox.NoPrivileges, sandbox.LimitMemory, sandbox.LimitPids}
}

// checkAccept returns an Invalid error about what is not for anybody to accept.
func checkAccept(list []string) error {
	may := slices.DeleteFunc(Needs(), func(name string) bool { return name == sandbox.SocketMount })
	for _, name := range list {
		if !slices.Contains(may, name) {
			return &agent.Error{
				Kind: agent.Invalid, Msg: fmt.Sprintf("sandboxes cannot do without %q by being told so", name),
				Hint: "what a server can accept that its sandboxes lack: " + strings.Join(may, ", "),
			}
		}
	}
	return nil
}

// Check returns an Invalid error unless all that an environment requires are capabilities that there are, and this server has its provider.
func (k *Keeper) Check(_ context.Context, env agent.Environment) error {
	for _, name := range env.Requires {
		if !slices.Contains(sandbox.Capabilities(), name) {
			return &agent.Error{
				Kind: agent.Invalid, Msg: fmt.Sprintf("environment %q: there is no capability %q", env.Name, name),
				Hint: "there are " + strings.Join(sandbox.Capabilities(), ", "),
			}
		}
	}
	_, err := k.provider(env.Provider)
	return err
}

// admit returns the provider of that name, if it has all that a sandbox of env needs now.
func (k *Keeper) admit(ctx context.Context, env *agent.Environment, keep agent.SandboxKeep, name string) (sandbox.Provider, error) {
	if err := k.Check(ctx, *env); err != nil {
		return nil, err
	}
	p, err := k.provider(name)
	if err != nil {
		return nil, err
	}
	has := k.probed(ctx, p)
	if !has.Ready {
		return nil, &agent.Error{Kind: agent.Unavailable, Msg: fmt.Sprintf("%s cannot be used for sandboxes: %s", p.Name(), has.Error), Hint: "skep sandbox providers shows what each provider has"}
	}
	if env.Runtime != "" && !slices.Contains(has.Runtimes, env.Runtime) {
		return nil, sandbox.NoRuntime(p.Name(), env.Runtime, has.Runtimes, "skep sandbox providers shows those of each provider")
	}
	always := slices.DeleteFunc(Needs(), func(name string) bool { return slices.Contains(k.o.Accept, name) })
	needs := slices.Concat(always, env.Requires)
	if keep == agent.Pet {
		needs = append(needs, sandbox.Persistent)
	}
	if len(env.Packages) > 0 {
		needs = append(needs, sandbox.ImageContent)
	}
	slices.Sort(needs)
	err = sandbox.Admit(has, slices.Compact(needs))
	if e := agent.AsError(err); err != nil && sandbox.Admit(has, always) != nil {
		e.Hint = "every sandbox needs what is missing, unless who runs the server accepts that: skep serve --sandbox-accept NAME"
		return nil, e
	}
	return p, err
}
