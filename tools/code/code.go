// Package code is what code mode knows of tools: how a script writes their names, how their schemas read in TypeScript, which of them
// answer a question, what is wrong with a call before it is made, and how much of a result a model is shown.
//
// Everything here is a pure function of tools and bytes. It calls nothing, stores nothing and loads nothing: a schema that points to
// another document is taken as one that says nothing. Tools come from servers that nobody vouches for, so every walk over a schema is
// bounded in depth, in nodes and in bytes, and what it writes is well-formed whatever it has read.
package code
