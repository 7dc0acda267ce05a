package skep

import (
	"errors"

	"github.com/skep-dev/skep/abi"
)

// Identity is who the code is that runs.
type Identity struct {
	Agent   string
	Key     string // of the instance; "" in a call that belongs to none
	Session string
	Run     string // "" when the call is no run
	Version string // digest of the code
}

// Self tells who the code is that runs.
func Self() (Identity, error) {
	var self abi.Self
	err := ask(abi.CallSelf, nil, &self)
	return Identity(self), err
}

// Outside commits what the turn has changed and lets other turns of the instance go first while f runs, which is for what is slow. f
// cannot reach what belongs to the instance, and what was read before may have changed after. In runs, alarms and messages it only
// calls f.
func Outside(f func() error) error {
	if err := ask(abi.CallTurnLeave, nil, nil); err != nil {
		return err
	}
	err := f()
	if back := ask(abi.CallTurnEnter, nil, nil); back != nil {
		return errors.Join(err, back)
	}
	return err
}

// AgentRef is an agent of the same app, which must have been granted unless it is the caller itself.
type AgentRef struct{ name string }

// Agent names an agent.
func Agent(name string) AgentRef { return AgentRef{name} }

// Call calls a function of the agent, as CallAgent does.
func (a AgentRef) Call(function string, in, out any) error {
	return CallAgent(a.name, function, in, out)
}

// Instance names an instance of the agent, which is made by the first call that it gets.
func (a AgentRef) Instance(key string) Instance { return Instance{agent: a.name, key: key} }

// Child names an instance that is the caller's own: it is made by the first call that it gets from here, and ends with the caller's
// instance.
func (a AgentRef) Child(key string) Instance { return Instance{agent: a.name, key: key, child: true} }

// Instance is one instance of an agent.
type Instance struct {
	agent, key string
	child      bool
}

// Call calls a method and waits for what it returns. in and out follow the rules of Do; a nil out throws the answer away. An instance
// that waits for this call itself is refused as a conflict: send it a message.
func (i Instance) Call(method string, in, out any) error {
	return call(&Call{Agent: i.agent, Key: i.key, Child: i.child, Function: method, In: in, Out: out})
}

// Send has a method called later, after this turn has been committed, and once whatever happens. Messages from one instance to another
// arrive in their order. A turn that fails sends nothing.
func (i Instance) Send(method string, in any) error {
	return call(&Call{Agent: i.agent, Key: i.key, Child: i.child, Function: method, In: in, Send: true})
}

// Delete ends a child and all that it keeps.
func (i Instance) Delete() error {
	return ask(abi.CallChildDelete, abi.ChildDelete{Agent: i.agent, Key: i.key}, nil)
}
