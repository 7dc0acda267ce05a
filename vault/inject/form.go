package inject

import (
	"net/url"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// form is a query or a body of type application/x-www-form-urlencoded. What has no placeholder stays as it was written.
type form []field

type field struct {
	raw  string // KEY=VALUE
	key  string // as written
	slot *slot
}

// form finds the slots in a query or a form. What says what one of its fields is called.
func (f *finder) form(kind agent.PlaceKind, text, what string) (form, error) {
	var out form
	count := map[string]int{}
	for raw := range strings.SplitSeq(text, "&") {
		key, value, _ := strings.Cut(raw, "=")
		if f.like(key) {
			return nil, misplaced(key, "in the name of a "+what, places)
		}
		name, err := url.QueryUnescape(key)
		if err == nil {
			count[name]++
		}
		fd := field{raw: raw, key: key}
		if f.like(value) {
			plain, err2 := url.QueryUnescape(value)
			if err != nil || err2 != nil {
				return nil, misplaced(raw, "in a "+what+" that is not percent-encoded as it should be", "encode the value as encodeURIComponent does")
			}
			if fd.slot, err = f.slot(agent.Place{Kind: kind, Name: name}, plain, "in the "+what+" "+quote(name)); err != nil {
				return nil, err
			}
		}
		out = append(out, fd)
	}
	for _, fd := range out {
		if fd.slot != nil && count[fd.slot.place.Name] > 1 {
			return nil, invalid("the "+what+" "+quote(fd.slot.place.Name)+" holds a secret and is there twice", "send it once: which of the two counts is the receiver's choice")
		}
	}
	return out, nil
}

func (fs form) String() string {
	var b strings.Builder
	for i, f := range fs {
		if i > 0 {
			b.WriteByte('&')
		}
		if f.slot == nil {
			b.WriteString(f.raw)
			continue
		}
		b.WriteString(f.key + "=" + strings.ReplaceAll(url.QueryEscape(f.slot.text), "+", "%20"))
	}
	return b.String()
}
