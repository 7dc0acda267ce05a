// Package aitest holds no code: its tests run the vendors' own clients for Node, unmodified, through the model gateway to servers that speak as
// providers do. npm ci in this folder installs the clients.
package aitest
