package wasi

import "github.com/skep-dev/skep/host/cell"

// Device is a private way between a program and its host, both ways, in place of the standard input. Its methods run on the cell's goroutine.
type Device interface {
	// Write takes b, which lies at address at of the guest's memory and is valid until Write returns.
	Write(c *cell.Cell, at uint32, b []byte)
	// Read returns at most n bytes; none is the end of what there is.
	Read(c *cell.Cell, n uint32) []byte
}

func deviceOf(c *cell.Cell, fd uint64) Device {
	if uint32(fd) != stdin {
		return nil
	}
	s, _ := stateOf(c)
	return s.Device
}

func writeDevice(c *cell.Cell, d Device, a []uint64) errno {
	vectors, n, at := uint32(a[1]), uint32(a[2]), uint32(a[3])
	if n > maxVectors {
		return errInvalid
	}
	total := uint32(0)
	for i := range n {
		ptr, size := c.U32(vectors+8*i), c.U32(vectors+8*i+4)
		b := c.Read(ptr, size)
		c.Spend(int64(size))
		d.Write(c, ptr, b)
		total += size
	}
	c.PutU32(at, total)
	return success
}

func readDevice(c *cell.Cell, d Device, a []uint64) errno {
	vectors, n, at := uint32(a[1]), uint32(a[2]), uint32(a[3])
	if n == 0 || n > maxVectors {
		return errInvalid
	}
	into := c.Read(c.U32(vectors), c.U32(vectors+4)) // a short read is a read: one piece at a time is enough
	got := copy(into, d.Read(c, uint32(len(into))))
	c.Spend(int64(got))
	c.PutU32(at, uint32(got))
	return success
}

func argsSizesGet(c *cell.Cell, a []uint64) errno {
	s, _ := stateOf(c)
	size := 0
	for _, arg := range s.Args {
		size += len(arg) + 1
	}
	c.PutU32(uint32(a[0]), uint32(len(s.Args)))
	c.PutU32(uint32(a[1]), uint32(size))
	return success
}

func argsGet(c *cell.Cell, a []uint64) errno {
	s, _ := stateOf(c)
	table, at := uint32(a[0]), uint32(a[1])
	for i, arg := range s.Args {
		c.PutU32(table+4*uint32(i), at)
		c.Write(at, append([]byte(arg), 0))
		at += uint32(len(arg)) + 1
	}
	return success
}
