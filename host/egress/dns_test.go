package egress

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
	"golang.org/x/net/dns/dnsmessage"
)

// nameserver answers over UDP on loopback. Each name has answers, of which each question for addresses takes the next; the
// last one stays.
type nameserver struct {
	mu      sync.Mutex
	answers map[string][][]string // an answer is addresses, and names for CNAMEs
	asked   []string
}

func serveNames(t *testing.T, answers map[string][][]string) (*nameserver, *net.Resolver) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameserver{answers: answers}
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(func() { _ = conn.Close() })
	all.Go(func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply := s.reply(t, buf[:n]); reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	})
	return s, &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func (s *nameserver) reply(t *testing.T, in []byte) []byte {
	var p dnsmessage.Parser
	head, err := p.Start(in)
	if err != nil {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	name := strings.TrimSuffix(q.Name.String(), ".")
	s.mu.Lock()
	s.asked = append(s.asked, name+" "+strings.TrimPrefix(q.Type.String(), "Type"))
	list := s.answers[name]
	var answer []string
	if len(list) > 0 {
		answer = list[0]
	}
	if len(list) > 1 && q.Type == dnsmessage.TypeA {
		s.answers[name] = list[1:]
	}
	s.mu.Unlock()
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: head.ID, Response: true, RecursionAvailable: true, RCode: rcode(list)})
	b.EnableCompression()
	must := func(err error) { // not by must: this is another goroutine
		if err != nil {
			t.Error(err)
		}
	}
	must(b.StartQuestions())
	must(b.Question(q))
	must(b.StartAnswers())
	owner := q.Name
	for _, a := range answer {
		h := dnsmessage.ResourceHeader{Name: owner, Class: dnsmessage.ClassINET}
		addr, err := netip.ParseAddr(a)
		switch {
		case err != nil:
			owner = dnsmessage.MustNewName(a + ".")
			must(b.CNAMEResource(h, dnsmessage.CNAMEResource{CNAME: owner}))
		case addr.Is4() && q.Type == dnsmessage.TypeA:
			must(b.AResource(h, dnsmessage.AResource{A: addr.As4()}))
		case addr.Is6() && q.Type == dnsmessage.TypeAAAA:
			must(b.AAAAResource(h, dnsmessage.AAAAResource{AAAA: addr.As16()}))
		}
	}
	out, err := b.Finish()
	must(err)
	return out
}

func rcode(list [][]string) dnsmessage.RCode {
	if list == nil {
		return dnsmessage.RCodeNameError
	}
	return dnsmessage.RCodeSuccess
}

func (s *nameserver) questions() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// TestNames resolves by real messages over UDP. want are the addresses that may be dialled; without any, none is.
func TestNames(t *testing.T) {
	for _, row := range []struct {
		name   string
		answer []string
		want   []string
		words  string
	}{
		{"public", []string{apiAddr}, []string{apiAddr}, ""},
		{"both families", []string{apiAddr, apiAddrV6}, []string{apiAddr, apiAddrV6}, ""},
		{"private", []string{"10.0.0.1"}, nil, "a private address"},
		{"loopback", []string{"127.0.0.1"}, nil, "a loopback address"},
		{"loopback, IPv6", []string{"::1"}, nil, "a loopback address"},
		{"metadata", []string{"169.254.169.254"}, nil, "a cloud metadata address"},
		{"public, then private", []string{apiAddr, "10.0.0.1"}, nil, "a private address"},
		{"private, then public", []string{"10.0.0.1", apiAddr}, nil, "a private address"},
		{"public, and private in the other family", []string{apiAddr, "fd00::1"}, nil, "a private address"},
		{"public in the other family, and private", []string{apiAddrV6, "192.168.1.1"}, nil, "a private address"},
		{"many public, one private", []string{"8.8.8.1", "8.8.8.2", "8.8.8.3", "8.8.8.4", "8.8.8.5", "8.8.8.6", "10.0.0.1"}, nil, "a private address"},
		{"mapped", []string{"::ffff:10.0.0.1"}, nil, "a private address"},
		{"NAT64 of private", []string{"64:ff9b::10.0.0.1"}, nil, "an IPv6 form of a private address"},
		{"CNAME to public", []string{"www.example.net", apiAddr}, []string{apiAddr}, ""},
		{"CNAME to private", []string{"internal.example.net", "10.0.0.1"}, nil, "a private address"},
		{"CNAMEs to private", []string{"a.example.net", "b.example.net", "internal.example.net", "172.16.0.1"}, nil, "a private address"},
		{"CNAME to localhost", []string{"localhost", "127.0.0.1"}, nil, "a loopback address"},
		{"CNAME to metadata", []string{"metadata.google.internal", "169.254.169.254"}, nil, "a cloud metadata address"},
		{"nothing", []string{}, nil, "there is no such name"},
		{"CNAME to nothing", []string{"nowhere.example.net"}, nil, "there is no such name"},
		{"no such name", nil, nil, "there is no such name"},
	} {
		t.Run(row.name, func(t *testing.T) {
			answers := map[string][][]string{}
			if row.answer != nil {
				answers["api.example.com"] = [][]string{row.answer}
			}
			_, resolver := serveNames(t, answers)
			w := newWorld(t)
			e := w.egress(func(o *Options) { o.Resolver = resolver })
			_, _, err := get(t, e, nil, &Request{URL: "http://api.example.com/"})
			if row.words != "" {
				kind := agent.Denied
				if strings.HasPrefix(row.words, "there is no") {
					kind = agent.Unavailable
				}
				wantError(t, err, kind, row.words)
			}
			for _, d := range w.dials() {
				if !slices.Contains(row.want, netip.MustParseAddrPort(d).Addr().String()) {
					t.Errorf("dialled %s, want %v", d, row.want)
				}
			}
			if len(w.dials()) != len(row.want) {
				t.Errorf("dialled %v, want %v", w.dials(), row.want)
			}
		})
	}
}

// TestRebinding has a name whose address changes from one question to the next: a public one for whoever checks, a private one
// for whoever dials.
func TestRebinding(t *testing.T) {
	ns, resolver := serveNames(t, map[string][][]string{"api.example.com": {{apiAddr}, {"127.0.0.1"}}})
	w := newWorld(t)
	served := 0
	w.http("other", apiAddr, func(rw http.ResponseWriter, _ *http.Request) {
		served++
		rw.Header().Set("Connection", "close")
	})
	e := w.egress(func(o *Options) { o.Resolver = resolver })
	if _, _, err := get(t, e, nil, &Request{URL: "http://api.example.com/"}); err != nil {
		t.Fatal(err)
	}
	if got := slices.DeleteFunc(ns.questions(), func(q string) bool { return strings.HasSuffix(q, " AAAA") }); len(got) != 1 {
		t.Errorf("asked %v, want one question", got)
	}
	_, _, err := get(t, e, nil, &Request{URL: "http://api.example.com/"})
	wantError(t, err, agent.Denied, "a loopback address")
	if got := w.dials(); !slices.Equal(got, []string{apiAddr + ":80"}) || served != 1 {
		t.Errorf("dialled %v, served %d", got, served)
	}
}

// TestLocalhost wants the machine itself where a name says so, without a question to anybody, and only where that is allowed.
func TestLocalhost(t *testing.T) {
	ns, resolver := serveNames(t, map[string][][]string{"localhost": {{apiAddr}}, "app.localhost": {{apiAddr}}})
	w := newWorld(t)
	for _, host := range []string{"localhost", "app.localhost"} {
		e := w.egress(func(o *Options) { o.Resolver = resolver })
		_, _, err := get(t, e, nil, &Request{URL: "http://" + host + ":8080/"})
		wantError(t, err, agent.Denied, host+" resolves to a loopback address")
		if got := w.dials(); len(got) != 0 {
			t.Errorf("dialled %v", got)
		}
	}
	w.http("own", "127.0.0.1", func(http.ResponseWriter, *http.Request) {})
	e := w.egress(func(o *Options) {
		o.Resolver, o.Allow = resolver, []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})
	if _, _, err := get(t, e, nil, &Request{URL: "http://localhost/"}); err != nil {
		t.Error(err)
	}
	if got := ns.questions(); len(got) != 0 {
		t.Errorf("asked %v", got)
	}
}

// TestNoSearch wants a short name not to be completed to one of the server's own network.
func TestNoSearch(t *testing.T) {
	ns, resolver := serveNames(t, nil)
	e := newWorld(t).egress(func(o *Options) { o.Resolver = resolver })
	_, _, err := get(t, e, nil, &Request{URL: "http://vault/"})
	wantError(t, err, agent.Unavailable, "no such name")
	for _, q := range ns.questions() {
		if q != "vault A" && q != "vault AAAA" {
			t.Errorf("asked for %s", q)
		}
	}
}

// TestNotGrantedIsNotResolved keeps names from being a way out.
func TestNotGrantedIsNotResolved(t *testing.T) {
	ns, resolver := serveNames(t, map[string][][]string{"stolen.example.net": {{apiAddr}}})
	w := newWorld(t)
	e := w.egress(func(o *Options) { o.Resolver = resolver })
	_, _, err := get(t, e, &guard{allow: func(agent.Request) bool { return false }}, &Request{URL: "http://stolen.example.net/"})
	wantError(t, err, agent.Denied, "not granted")
	if len(ns.questions()) > 0 || len(w.dials()) > 0 {
		t.Errorf("asked %v, dialled %v", ns.questions(), w.dials())
	}
}

func TestSilentNameserver(t *testing.T) {
	e := newWorld(t).egress(func(o *Options) {
		o.Resolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: context.DeadlineExceeded}
		}}
	})
	_, _, err := get(t, e, nil, &Request{URL: "http://api.example.com/?q=hidden"})
	wantError(t, err, agent.Unavailable, "")
	if strings.Contains(err.Error(), "hidden") {
		t.Error(err)
	}
}
