// Package arch holds no code: its tests are the architecture of this module, so that "go test ./..." refuses a change
// that bends it.
package arch
