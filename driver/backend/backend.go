// Package backend is the seam between the driver and what speaks to one vendor's command-line agent. Backends are leaves of driver/backend.
package backend

import (
	"context"

	"github.com/skep-dev/skep/driver"
)

// Backend speaks to one CLI.
type Backend interface {
	Spec() Spec
	// Start starts the CLI in p.Dir, or resumes p.Resume in it, and does not begin a turn. It returns when the CLI is ready for one. Events of the CLI go to
	// sink from then on, in their order; SessionStarted is the first.
	Start(ctx context.Context, p *driver.Prompt, env *Env, sink func(driver.Event)) (Session, error)
}

// Session is a CLI that runs. Its methods can be called at once.
type Session interface {
	// Prompt begins a turn, while none is under way. TurnStarted is its first event, TurnEnded its last, which comes also when the CLI dies.
	Prompt(ctx context.Context, p *driver.Prompt) error
	// Answer answers what was asked. What was withdrawn, or answered, is a NotFound error.
	Answer(ctx context.Context, a *driver.Answer) error
	// Interrupt asks the CLI to end the turn. The driver waits for TurnEnded, and ends the process when that does not come.
	Interrupt(ctx context.Context) error
	// Close ends the CLI politely, and returns when it has exited or ctx has ended.
	Close(ctx context.Context) error
	// Done is closed when the CLI has exited, after its last event.
	Done() <-chan struct{}
}

// Env is what a backend has of the box.
type Env struct {
	Home   string            // of the user; backends write the CLI's configuration below it
	Relay  string            // http://HOST:PORT of the relay
	Models string            // base URL of the gateway of models at the relay, such as http://127.0.0.1:18080/ai
	Key    string            // for it
	Vars   map[string]string // environment of what runs, without the backend's own
	// Spawn starts a process in a group of its own, with pipes. Its standard error is kept and told by the driver, which also tells of its start and end.
	Spawn func(ctx context.Context, s *Command) (Process, error)
}

// Command is what to start.
type Command struct {
	Path string
	Args []string // without Path
	Dir  string
	Env  map[string]string // besides Vars
}

// Process is one that was started.
type Process interface {
	// Write writes to its standard input.
	Write(p []byte) (int, error)
	// Read reads its standard output.
	Read(p []byte) (int, error)
	CloseInput() error
	// Signal sends a signal by its name, such as INT, to the process and, with group, to all that it has started.
	Signal(name string, group bool) error
	// Wait returns how it ended, when it has, and its output is read.
	Wait() driver.ProcessData
	Done() <-chan struct{}
}

// Spec is what a backend is.
type Spec struct {
	Name        string   `json:"name"`      // claude, codex, opencode, gemini, pi, acp
	Title       string   `json:"title"`     // of the CLI
	Package     string   `json:"package"`   // npm package, with the version that the tests run
	Binary      string   `json:"binary"`    // that is looked for in PATH
	Protocol    string   `json:"protocol"`  // how it is spoken to
	Models      []string `json:"models"`    // protocols of models of which it speaks one: agent.Protocol
	Abilities   []string `json:"abilities"` // of Abilities
	Proprietary bool     `json:"proprietary,omitempty"`
}

// Abilities of backends.
const (
	Asks       = "permissions" // asks to be allowed; without it only AllowAll can be had
	Interrupts = "interrupt"   // ends a turn and goes on living
	Resumes    = "resume"      // a session, by its id, in a process of later
	Streams    = "stream"      // says what it says while it comes
	Thinks     = "reasoning"
	Plans      = "plan"
	Counts     = "usage"
	Questions  = "questions"
	Diffs      = "diffs"  // tells which files it has changed
	Images     = "images" // shows the model those of a prompt
)

// Abilities lists them all.
func Abilities() []string {
	return []string{Asks, Interrupts, Resumes, Streams, Thinks, Plans, Counts, Questions, Diffs, Images}
}
