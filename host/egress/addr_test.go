package egress

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

// addresses are what a name could resolve to, or a guest could write, and the kind for which it is refused; "" for public ones.
var addresses = []struct{ addr, kind string }{
	{"0.0.0.0", "unspecified"},
	{"0.0.0.1", "this network"},
	{"0.255.255.255", "this network"},
	{"1.0.0.0", ""},
	{"9.255.255.255", ""},
	{"10.0.0.0", "private"},
	{"10.255.255.255", "private"},
	{"11.0.0.0", ""},
	{"100.63.255.255", ""},
	{"100.64.0.0", "carrier"},
	{"100.100.100.200", "metadata"},
	{"100.127.255.255", "carrier"},
	{"100.128.0.0", ""},
	{"126.255.255.255", ""},
	{"127.0.0.0", "loopback"},
	{"127.0.0.1", "loopback"},
	{"127.255.255.254", "loopback"},
	{"128.0.0.0", ""},
	{"168.63.129.16", "metadata"},
	{"168.63.129.17", ""},
	{"169.253.255.255", ""},
	{"169.254.0.0", "link-local"},
	{"169.254.169.254", "metadata"},
	{"169.254.170.2", "metadata"},
	{"169.254.255.255", "link-local"},
	{"169.255.0.0", ""},
	{"172.15.255.255", ""},
	{"172.16.0.0", "private"},
	{"172.31.255.255", "private"},
	{"172.32.0.0", ""},
	{"192.0.0.0", "reserved"},
	{"192.0.0.192", "metadata"},
	{"192.0.1.0", ""},
	{"192.0.2.1", "documentation"},
	{"192.31.196.1", "reserved"},
	{"192.52.193.1", "reserved"},
	{"192.88.99.1", "6to4"},
	{"192.168.0.1", "private"},
	{"192.169.0.0", ""},
	{"192.175.48.6", "reserved"},
	{"198.17.255.255", ""},
	{"198.18.0.0", "benchmarks"},
	{"198.19.255.255", "benchmarks"},
	{"198.20.0.0", ""},
	{"198.51.100.7", "documentation"},
	{"203.0.113.7", "documentation"},
	{"223.255.255.255", ""},
	{"224.0.0.1", "multicast"},
	{"239.255.255.255", "multicast"},
	{"240.0.0.0", "reserved"},
	{"255.255.255.254", "reserved"},
	{"255.255.255.255", "broadcast"},

	{"::", "unspecified"},
	{"::1", "loopback"},
	{"::2", "IPv4-compatible"},
	{"::8.8.8.8", "IPv4-compatible"},
	{"::127.0.0.1", "IPv4-compatible"},
	{"::ffff:127.0.0.1", "loopback"},
	{"::ffff:10.0.0.1", "private"},
	{"::ffff:169.254.169.254", "metadata"},
	{"::ffff:8.8.8.8", ""},
	{"::ffff:0:127.0.0.1", "reserved"}, // IPv4-translated (RFC 2765)
	{"64:ff9b::127.0.0.1", "an IPv6 form of a loopback"},
	{"64:ff9b::10.1.2.3", "an IPv6 form of a private"},
	{"64:ff9b::169.254.169.254", "an IPv6 form of a cloud metadata"},
	{"64:ff9b::8.8.8.8", ""},
	{"64:ff9b:0:0:0:1:808:808", "reserved"},
	{"64:ff9b:1::8.8.8.8", "local NAT64"},
	{"100::1", "discard"},
	{"100:0:0:1::1", "reserved"},
	{"1fff:ffff::1", "reserved"},
	{"2000::1", ""},
	{"2001::1", "Teredo"},
	{"2001:0:4136:e378:8000:63bf:3fff:fdd2", "Teredo"},
	{"2001:1::1", "reserved"},
	{"2001:2::1", "benchmarks"},
	{"2001:10::1", "reserved"},
	{"2001:20::1", "reserved"},
	{"2001:1ff:ffff::1", "reserved"},
	{"2001:200::1", ""},
	{"2001:db8::1", "documentation"},
	{"2001:4860:4860::8888", ""},
	{"2002:7f00:1::1", "6to4"},
	{"2002:808:808::1", "6to4"},
	{"2003::1", ""},
	{"2620:4f:8000::1", "reserved"},
	{"2606:2800:220:1::5efe:7f00:1", "an IPv6 form of a loopback"},
	{"2606:2800:220:1:0:5efe:10.0.0.1", "an IPv6 form of a private"},
	{"2606:2800:220:1:200:5efe:a9fe:a9fe", "an IPv6 form of a cloud metadata"},
	{"2606:2800:220:1:0:5efe:8.8.8.8", ""},
	{"2606:2800:220:1::1", ""},
	{"3fff::1", "documentation"},
	{"3fff:1000::1", ""},
	{"4000::1", "reserved"},
	{"5f00::1", "reserved"},
	{"fc00::1", "private"},
	{"fd00:ec2::254", "metadata"},
	{"fd20:ce::254", "metadata"},
	{"fdff::1", "private"},
	{"fe00::1", "reserved"},
	{"fe80::1", "link-local"},
	{"febf::1", "link-local"},
	{"fec0::1", "site-local"},
	{"ff02::1", "multicast"},
	{"ff0e::1", "multicast"},
	{"93.184.216.99", "this server"},
}

// TestAddresses asks for each address by a name and as it is, and wants it refused before anything is dialled, or that address
// and no other dialled.
func TestAddresses(t *testing.T) {
	for _, row := range addresses {
		t.Run(row.addr, func(t *testing.T) {
			w := newWorld(t)
			e := w.egress()
			addr := netip.MustParseAddr(row.addr)
			w.names["api.example.com"] = []string{row.addr}
			hosts := []string{"api.example.com"}
			if addr.Is4() {
				hosts = append(hosts, row.addr)
			} else if !addr.Is4In6() {
				hosts = append(hosts, "["+addr.String()+"]")
			}
			want := []string{}
			for _, host := range hosts {
				_, _, err := get(t, e, nil, &Request{URL: "http://" + host + "/?q=hidden"})
				if row.kind == "" {
					wantError(t, err, agent.Unavailable, "refused")
					want = append(want, netip.AddrPortFrom(addr.Unmap(), 80).String())
					continue
				}
				wantError(t, err, agent.Denied, row.kind)
				x := agent.AsError(err)
				if !strings.Contains(x.Msg, strings.Trim(host, "[]")) || !strings.Contains(x.Hint, "--egress-allow") || strings.Contains(err.Error(), "hidden") {
					t.Errorf("the error is %v, the hint %q", err, x.Hint)
				}
				if host == "api.example.com" && strings.Contains(x.Msg+x.Hint, row.addr) {
					t.Errorf("the error tells the guest what the name resolves to: %q", x.Msg)
				}
			}
			if !slices.Equal(w.dials(), want) {
				t.Errorf("dialled %v, want %v", w.dials(), want)
			}
		})
	}
}

func TestAllow(t *testing.T) {
	for _, row := range []struct {
		allow, addr string
		kind        string
	}{
		{"10.0.0.0/8", "10.1.2.3", ""},
		{"10.0.0.0/8", "::ffff:10.1.2.3", ""},
		{"10.0.0.0/8", "64:ff9b::10.1.2.3", ""},
		{"10.0.0.0/8", "2606:2800:220:1:0:5efe:10.0.0.1", ""},
		{"10.0.0.0/8", "2002:a01:203::1", "6to4"},
		{"10.0.0.0/8", "11.0.0.0", ""},
		{"10.1.0.0/16", "10.2.0.0", "private"},
		{"127.0.0.1/32", "127.0.0.2", "loopback"},
		{"127.0.0.1/32", "::1", "loopback"},
		{"fd00::/8", "fd00::1", ""},
		{"169.254.0.0/16", "169.254.169.254", ""},
		{"93.184.216.99/32", "93.184.216.99", ""},
		{"0.0.0.0/0", "::1", "loopback"},
	} {
		t.Run(row.allow+" "+row.addr, func(t *testing.T) {
			w := newWorld(t)
			w.names["api.example.com"] = []string{row.addr}
			e := w.egress(func(o *Options) { o.Allow = []netip.Prefix{netip.MustParsePrefix(row.allow)} })
			_, _, err := get(t, e, nil, &Request{URL: "http://api.example.com/"})
			if row.kind == "" {
				wantError(t, err, agent.Unavailable, "refused")
			} else {
				wantError(t, err, agent.Denied, row.kind)
			}
			if (row.kind == "") != (len(w.dials()) == 1) {
				t.Errorf("dialled %v", w.dials())
			}
		})
	}
}

// TestSocket wants the system's dialer to judge the address once more, when whoever called it did not.
func TestSocket(t *testing.T) {
	accepted := make(chan struct{}, 1)
	at := netip.MustParseAddrPort(listenOnce(t, accepted))
	e := New(nil)
	conn, err := e.dialer.system(t.Context(), at)
	if err == nil {
		_ = conn.Close()
	}
	wantError(t, err, agent.Denied, "loopback")
	e = New(&Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
	if conn, err = e.dialer.system(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	<-accepted
	if len(accepted) > 0 {
		t.Error("the refused connection came about")
	}
}
