package memkv

import (
	"bytes"
	"hash/fnv"
)

// node is an immutable treap node: ordered by key, and a heap by prio. A nil node is the empty tree.
type node struct {
	key, value  []byte
	prio        uint64
	left, right *node
}

// priority is a function of the key, so a tree's shape depends on its keys alone.
func priority(key []byte) uint64 {
	h := fnv.New64a()
	h.Write(key)
	x := h.Sum64() // FNV's low bits follow the last byte closely: mix them (splitmix64's finaliser)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (n *node) find(key []byte) *node {
	for n != nil {
		switch c := bytes.Compare(key, n.key); {
		case c == 0:
			return n
		case c < 0:
			n = n.left
		default:
			n = n.right
		}
	}
	return nil
}

func (n *node) with(key, value []byte) *node {
	return n.insert(&node{key: key, value: value, prio: priority(key)})
}

func (n *node) insert(x *node) *node {
	if n == nil {
		return x
	}
	c := bytes.Compare(x.key, n.key)
	if c == 0 {
		x.left, x.right = n.left, n.right
		return x
	}
	if x.prio > n.prio { // x is not below n, so it is not in the tree: equal keys have equal priorities
		x.left, x.right = n.split(x.key)
		return x
	}
	m := *n
	if c < 0 {
		m.left = n.left.insert(x)
	} else {
		m.right = n.right.insert(x)
	}
	return &m
}

// split returns the nodes below key and those above; key itself is not in the tree.
func (n *node) split(key []byte) (below, above *node) {
	if n == nil {
		return nil, nil
	}
	m := *n
	if bytes.Compare(n.key, key) < 0 {
		m.right, above = n.right.split(key)
		return &m, above
	}
	below, m.left = n.left.split(key)
	return below, &m
}

func (n *node) without(key []byte) *node {
	if n == nil {
		return nil
	}
	c := bytes.Compare(key, n.key)
	if c == 0 {
		return join(n.left, n.right)
	}
	m := *n
	if c < 0 {
		if m.left = n.left.without(key); m.left == n.left {
			return n
		}
	} else if m.right = n.right.without(key); m.right == n.right {
		return n
	}
	return &m
}

// join merges two trees, every key of a being below every key of b.
func join(a, b *node) *node {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.prio > b.prio:
		m := *a
		m.right = join(a.right, b)
		return &m
	}
	m := *b
	m.left = join(a, b.left)
	return &m
}

func (n *node) scan(from, to []byte, reverse bool, fn func(key, value []byte) error) error {
	if n == nil {
		return nil
	}
	low := bytes.Compare(n.key, from) < 0
	high := to != nil && bytes.Compare(n.key, to) >= 0
	first, second := n.left, n.right
	skipFirst, skipSecond := low, high
	if reverse {
		first, second, skipFirst, skipSecond = second, first, skipSecond, skipFirst
	}
	if !skipFirst {
		if err := first.scan(from, to, reverse, fn); err != nil {
			return err
		}
	}
	if !low && !high {
		if err := fn(n.key, n.value); err != nil {
			return err
		}
	}
	if skipSecond {
		return nil
	}
	return second.scan(from, to, reverse, fn)
}
