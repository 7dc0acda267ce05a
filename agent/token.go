package agent

import "time"

// Token is a personal access token as it is listed: the secret itself is shown once, when it is made.
type Token struct {
	ID      TokenID   `json:"id"`
	Name    string    `json:"name"`
	App     App       `json:"app,omitempty"` // the one app it is good for; empty means every app
	Role    Role      `json:"role"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"` // zero means never
}

// Role is what a token's holder may do.
type Role uint8

const (
	Owner     Role = iota // everything
	Developer             // push, create, call and narrow; not: widen grants, or change secrets, quotas, tokens and apps
)

var roleNames = [...]string{"owner", "developer"}

func (r Role) String() string                { return nameOf(roleNames[:], r) }
func (r Role) MarshalText() ([]byte, error)  { return []byte(r.String()), nil }
func (r *Role) UnmarshalText(b []byte) error { return parseName(roleNames[:], b, r, "role") }

// Page asks for one page of a list.
type Page struct {
	After string // cursor of the page before; "" for the first
	Limit int    // 1 to MaxPage; 0 means DefaultPage
}

const (
	DefaultPage = 50
	MaxPage     = 1000
)
