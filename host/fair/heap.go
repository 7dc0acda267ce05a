package fair

import stdheap "container/heap"

// order is a way to put items in order.
type order uint8

// item is what a heap holds. slot is where it keeps its index in the heap of an order, -1 while it is in none.
type item interface {
	before(by order, other item) bool
	slot(by order) *int
}

// heap keeps items in an order, the first at index 0, and knows where each is.
type heap struct {
	by    order
	items []item
}

func (h *heap) add(x item)    { stdheap.Push(h, x) }
func (h *heap) remove(x item) { stdheap.Remove(h, *x.slot(h.by)) }

// fix puts an item where it belongs now, if it is in the heap.
func (h *heap) fix(x item) {
	if at := *x.slot(h.by); at >= 0 {
		stdheap.Fix(h, at)
	}
}

// The methods of container/heap.

func (h *heap) Len() int           { return len(h.items) }
func (h *heap) Less(i, j int) bool { return h.items[i].before(h.by, h.items[j]) }

func (h *heap) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	*h.items[i].slot(h.by), *h.items[j].slot(h.by) = i, j
}

func (h *heap) Push(x any) {
	*x.(item).slot(h.by) = len(h.items)
	h.items = append(h.items, x.(item))
}

func (h *heap) Pop() any {
	last := len(h.items) - 1
	x := h.items[last]
	h.items[last], h.items = nil, h.items[:last]
	*x.slot(h.by) = -1
	return x
}
