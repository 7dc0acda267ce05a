package tools

import "errors"

// MarkUnsent returns err with the mark that its call has not left for the server of tools: it has had no effect, and can be made again. Sources mark
// errors of Call so, whatever their kind.
func MarkUnsent(err error) error {
	if err == nil || Unsent(err) {
		return err
	}
	return &unsent{err}
}

// Unsent reports whether err is of a call that has certainly not reached its server. An error without the mark leaves that open: the call may have
// had its effect.
func Unsent(err error) bool {
	var u *unsent
	return errors.As(err, &u)
}

type unsent struct{ error }

func (u *unsent) Unwrap() error { return u.error }
