// Package image makes images for sandboxes out of files, without a registry: a base, the command-line agents that are asked for from npm, all in one tar
// that is streamed to a container engine, Docker or Podman. Nothing is downloaded that was not named, and nothing is passed on to others.
//
// The files of an image are sorted and have fixed times and owners, so that the same parts make the same layer. What an image was made of is in its label.
package image
