// Package nonblock reads and writes TCP connections by system calls of which Go's scheduler is not told. These calls do not block: the sockets are non-blocking,
// and the poller waits for them as ever. Of each call that may block the scheduler is told, which wakes its monitor when the process was idle: a thread that is
// woken, looks around, and sleeps again. In a server that waits most of the time that happens with every packet, and costs as much as the packet.
package nonblock

import "net"

// Of returns c with quicker Read and Write, where there are any: for TCP connections on Linux. They return what those of c do. Under the race detector it is c
// itself, as the detector learns from package net what happened before what.
func Of(c net.Conn) net.Conn { return of(c) }
