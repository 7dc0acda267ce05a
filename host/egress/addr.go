package egress

import (
	"net/netip"
	"slices"
)

// special is a block of addresses that is not part of the public internet, and what it is.
type special struct {
	prefix netip.Prefix
	kind   string // after "a" or "an"
}

// metadata are addresses at which clouds answer their machines. They come before the blocks that they lie in.
// The rest are the IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890), also where those count a block as
// reachable, and the blocks for multicast (RFC 5771) and for future use (RFC 1112). Of IPv6 only 2000::/3 is in use for
// single hosts (RFC 4291): what lies beyond is refused, whether it has a line here or not.
var specials = []special{
	{netip.MustParsePrefix("169.254.169.254/32"), "a cloud metadata address"},
	{netip.MustParsePrefix("169.254.169.253/32"), "a cloud metadata address"},
	{netip.MustParsePrefix("169.254.170.2/32"), "a cloud metadata address"},
	{netip.MustParsePrefix("169.254.170.23/32"), "a cloud metadata address"},
	{netip.MustParsePrefix("100.100.100.200/32"), "a cloud metadata address"},
	{netip.MustParsePrefix("168.63.129.16/32"), "a cloud metadata address"},
	{netip.MustParsePrefix("192.0.0.192/32"), "a cloud metadata address"},
	{netip.MustParsePrefix("fd00:ec2::/32"), "a cloud metadata address"},
	{netip.MustParsePrefix("fd20:ce::254/128"), "a cloud metadata address"},

	{netip.MustParsePrefix("0.0.0.0/32"), "an unspecified address"},
	{netip.MustParsePrefix("0.0.0.0/8"), "an address of this network"},
	{netip.MustParsePrefix("10.0.0.0/8"), "a private address"},
	{netip.MustParsePrefix("100.64.0.0/10"), "a carrier's address"},
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback address"},
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local address"},
	{netip.MustParsePrefix("172.16.0.0/12"), "a private address"},
	{netip.MustParsePrefix("192.0.0.0/24"), "a reserved address"},
	{netip.MustParsePrefix("192.0.2.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("192.31.196.0/24"), "a reserved address"},
	{netip.MustParsePrefix("192.52.193.0/24"), "a reserved address"},
	{netip.MustParsePrefix("192.88.99.0/24"), "a 6to4 relay's address"},
	{netip.MustParsePrefix("192.168.0.0/16"), "a private address"},
	{netip.MustParsePrefix("192.175.48.0/24"), "a reserved address"},
	{netip.MustParsePrefix("198.18.0.0/15"), "an address for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address"},
	{netip.MustParsePrefix("255.255.255.255/32"), "a broadcast address"},
	{netip.MustParsePrefix("240.0.0.0/4"), "a reserved address"},

	{netip.MustParsePrefix("::/128"), "an unspecified address"},
	{netip.MustParsePrefix("::1/128"), "a loopback address"},
	{netip.MustParsePrefix("::/96"), "an IPv4-compatible address"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "a local NAT64 address"},
	{netip.MustParsePrefix("100::/64"), "a discard address"},
	{netip.MustParsePrefix("2001::/32"), "a Teredo address"},
	{netip.MustParsePrefix("2001:2::/48"), "an address for benchmarks"},
	{netip.MustParsePrefix("2001::/23"), "a reserved address"},
	{netip.MustParsePrefix("2001:db8::/32"), "an address for documentation"},
	{netip.MustParsePrefix("2002::/16"), "a 6to4 address"},
	{netip.MustParsePrefix("2620:4f:8000::/48"), "a reserved address"},
	{netip.MustParsePrefix("3fff::/20"), "an address for documentation"},
	{netip.MustParsePrefix("5f00::/16"), "a reserved address"},
	{netip.MustParsePrefix("fc00::/7"), "a private address"},
	{netip.MustParsePrefix("fe80::/10"), "a link-local address"},
	{netip.MustParsePrefix("fec0::/10"), "a site-local address"},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address"},
}

var (
	globalV6 = netip.MustParsePrefix("2000::/3")
	nat64    = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052
)

// refusal says what kind of address addr is, or "" if it may be dialled: when it is public, or in allow.
func refusal(addr netip.Addr, allow []netip.Prefix) string {
	if addr.Zone() != "" {
		return "an address with a zone"
	}
	addr = addr.Unmap()
	if slices.ContainsFunc(allow, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return ""
	}
	if nat64.Contains(addr) { // as good as what is behind it
		return behind(addr, allow)
	}
	for _, s := range specials {
		if s.prefix.Contains(addr) {
			return s.kind
		}
	}
	if addr.Is4() {
		return ""
	}
	if !globalV6.Contains(addr) {
		return "a reserved address"
	}
	if b := addr.As16(); b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe { // ISATAP (RFC 5214)
		return behind(addr, allow)
	}
	return ""
}

// behind judges the IPv4 address in the last four bytes of an IPv6 one.
func behind(addr netip.Addr, allow []netip.Prefix) string {
	b := addr.As16()
	if kind := refusal(netip.AddrFrom4([4]byte(b[12:])), allow); kind != "" {
		return "an IPv6 form of " + kind
	}
	return ""
}
