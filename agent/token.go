package agent

import "time"

// Token is a personal access token as it is listed: the secret itself is shown once, when it is made.
type Token struct {
	ID      TokenID   `json:"id"`
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"` // zero means never
}

// Page asks for one page of a list.
type Page struct {
	After string // cursor of the page before; "" for the first
	Limit int    // 1 to MaxPage; 0 means DefaultPage
}

const (
	DefaultPage = 50
	MaxPage     = 1000
)
