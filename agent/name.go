package agent

import "fmt"

// nameOf and parseName serve the small integer kinds of this package, whose text form is a name in a table.
func nameOf[K ~uint8](names []string, k K) string {
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("unknown(%d)", uint8(k))
}

func parseName[K ~uint8](names []string, b []byte, k *K, what string) error {
	for i, n := range names {
		if n == string(b) {
			*k = K(i)
			return nil
		}
	}
	return Errorf(Invalid, "unknown %s %q", what, b)
}

// quote shows s in a message, cut to a length that fits one.
func quote(s string) string {
	if len(s) > 80 {
		s = s[:80] + "..."
	}
	return fmt.Sprintf("%q", s)
}
