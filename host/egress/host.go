package egress

import (
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// parseAuthority returns the host and the port of a URL in their one form.
func parseAuthority(scheme, s string) (host, port string, err error) {
	if strings.Contains(s, "@") {
		return "", "", badURL("the URL holds a user or a password", "keep it as a secret of kind basic, and send the header authorization: {{secret:NAME}}")
	}
	host, port = s, ""
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return "", "", badURL(`the URL's address has no "]"`, "")
		}
		host, port = s[:end+1], s[end+1:]
		if port != "" && port[0] != ':' {
			return "", "", badURL(`the URL has text after the address's "]"`, `a port comes after ":"`)
		}
		port = strings.TrimPrefix(port, ":")
		host, err = parseV6(host[1:end])
	} else {
		host, port, _ = strings.Cut(s, ":")
		if strings.Contains(port, ":") {
			return "", "", badURL(`the URL's host has more than one ":"`, "an IPv6 address stands in brackets: https://[2001:db8::1]/")
		}
		host, err = parseHost(host)
	}
	if err != nil {
		return "", "", err
	}
	port, err = parsePort(scheme, port)
	return host, port, err
}

func parsePort(scheme, s string) (string, error) {
	if s == "" {
		if scheme == "http" {
			return "80", nil
		}
		return "443", nil
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '+' || len(s) > 5 {
		return "", badURL("the URL's port is not a number from 1 to 65535", "")
	}
	return strconv.FormatUint(n, 10), nil
}

func parseV6(s string) (string, error) {
	if strings.ContainsAny(s, "%") {
		return "", badURL("the URL's address has a zone", `leave out what begins with "%"`)
	}
	addr, err := netip.ParseAddr(s)
	if err != nil || !addr.Is6() {
		return "", badURL("what stands in brackets in the URL is not an IPv6 address", "")
	}
	if addr.Is4In6() {
		return "", badURL("the URL has an IPv4 address in IPv6 form", "write "+addr.Unmap().String())
	}
	return addr.String(), nil
}

// parseHost returns a name in lower case and ASCII, or an IPv4 address in its one usual form.
func parseHost(s string) (string, error) {
	if s == "" {
		return "", badURL("the URL has no host", "write the whole URL, such as https://api.example.com/v1")
	}
	if strings.Contains(s, "%") {
		return "", badURL(`the URL's host has a "%"`, "write the name itself")
	}
	host := lowerASCII(strings.TrimSuffix(s, "."))
	if !ascii(host) || strings.HasPrefix(host, "xn--") || strings.Contains(host, ".xn--") {
		var err error
		if host, err = international(host); err != nil {
			return "", err
		}
	}
	if !validHost(host) {
		return "", badURL("the URL's host is not a name or an address", "a name has letters, digits, hyphens and underscores between single dots, at most 63 in a row and 253 in all")
	}
	if numeric(host[strings.LastIndexByte(host, '.')+1:]) {
		addr, err := netip.ParseAddr(host)
		if err != nil || !addr.Is4() || strings.HasSuffix(s, ".") {
			return "", badURL("the URL's host is an address in an unusual form", "write an IPv4 address as four decimal numbers: 192.0.2.1")
		}
	}
	return host, nil
}

// international returns a name's ASCII form (RFC 5891). Only one way to write a name is taken, so that nobody reads it as
// another: characters that the mapping of UTS #46 would replace or drop are refused.
func international(host string) (string, error) {
	to, err := idna.Lookup.ToASCII(host)
	if err != nil {
		return "", badURL("the URL's host is not a valid international name", "")
	}
	back, err := idna.Lookup.ToUnicode(to)
	if err != nil || ascii(host) && to != host || !ascii(host) && !sameLabels(back, host) || ascii(to) && !strings.Contains(to, "xn--") {
		return "", badURL("the URL's host is written with characters that stand for others", "write it as "+strconv.QuoteToASCII(to))
	}
	return to, nil
}

// sameLabels compares a name with its Unicode form, label by label: those in ASCII form already may stay so.
func sameLabels(unicode, written string) bool {
	us, ws := strings.Split(unicode, "."), strings.Split(written, ".")
	if len(us) != len(ws) {
		return false
	}
	for i, w := range ws {
		if us[i] == w {
			continue
		}
		if back, err := idna.Lookup.ToUnicode(w); !ascii(w) || err != nil || back != us[i] {
			return false
		}
	}
	return true
}

// lowerASCII leaves other letters alone: the lower case of some is an ASCII letter.
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, s)
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// validHost is what agent.ParseTarget takes for a name.
func validHost(s string) bool {
	if len(s) > 253 {
		return false
	}
	start := 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) && s[i] != '.' {
			if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
			continue
		}
		if i == start || i-start > 63 || s[start] == '-' || s[i-1] == '-' {
			return false
		}
		start = i + 1
	}
	return true
}

// numeric reports whether a name that ends with such a label is an address to some (WHATWG URL, "ends in a number").
func numeric(label string) bool {
	digits, hex := strings.CutPrefix(label, "0x")
	for i := range len(digits) {
		c := digits[i]
		if (c < '0' || c > '9') && (!hex || c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
