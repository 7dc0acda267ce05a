package egress

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
)

const (
	serveBench = "SKEP_BENCH_SERVER"
	benchPath  = "/v1/items"
)

var benchBody = strings.Repeat(`{"id":1,"name":"item"},`, 40)

// TestServeBench is the server of the benchmarks, in a process of its own so that only the client is measured.
func TestServeBench(t *testing.T) {
	if os.Getenv(serveBench) == "" {
		t.Skip("this is for the benchmarks")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	_, _ = io.WriteString(os.Stdout, l.Addr().String()+"\n")
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, benchBody)
	})}
	go func() { _ = s.Serve(l) }()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func benchServer(b *testing.B) string {
	cmd := exec.Command(os.Args[0], "-test.run=^TestServeBench$")
	cmd.Env = append(os.Environ(), serveBench+"=1")
	in, err := cmd.StdinPipe()
	must(b, err)
	out, err := cmd.StdoutPipe()
	must(b, err)
	must(b, cmd.Start())
	b.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	must(b, err)
	return strings.TrimSpace(line)
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkDoor compares requests through the door, judged by a real grant, with those of a bare client to the same server, in
// rounds by turns. What is compared is the CPU time of this process; the ratio is the median of the rounds' own.
func BenchmarkDoor(b *testing.B) {
	at := benchServer(b)
	sides := []struct {
		name string
		do   func() (io.ReadCloser, error)
		took []float64 // nanoseconds of a request, by rounds
	}{{"door", throughDoor(b, at), nil}, {"bare", bareClient(b, at), nil}}
	const round = 200
	for b.Loop() {
		for i := range sides {
			s := &sides[i]
			before := cpuTime(b)
			for range round {
				body, err := s.do()
				must(b, err)
				n, err := io.Copy(io.Discard, body)
				must(b, err)
				_ = body.Close()
				if n != int64(len(benchBody)) {
					b.Fatalf("%d bytes came", n)
				}
			}
			s.took = append(s.took, float64(cpuTime(b)-before)/round)
		}
	}
	var times []float64
	for i, ours := range sides[0].took {
		times = append(times, ours/sides[1].took[i])
	}
	for _, s := range sides {
		b.ReportMetric(middle(s.took), s.name+"-cpu-ns/request")
	}
	b.ReportMetric(middle(times), "times-bare")
}

func middle(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}

func throughDoor(b *testing.B, at string) func() (io.ReadCloser, error) {
	e := New(&Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
	b.Cleanup(func() { _ = e.Close() })
	target, err := agent.ParseTarget("GET,POST http://127.0.0.1:*/v1/**")
	must(b, err)
	g := &guard{allow: target.Has}
	r := &Request{Owner: Owner{agent.DefaultApp, "bench"}, URL: "http://" + at + benchPath + "?page=1", Header: [][2]string{{"accept", "application/json"}}}
	return func() (io.ReadCloser, error) {
		g.judged = g.judged[:0]
		res, err := e.Do(b.Context(), g, r)
		if err != nil {
			return nil, err
		}
		return res.Body, nil
	}
}

func bareClient(b *testing.B, at string) func() (io.ReadCloser, error) {
	c := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	b.Cleanup(c.CloseIdleConnections)
	return func() (io.ReadCloser, error) {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://"+at+benchPath+"?page=1", nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Accept", "application/json")
		res, err := c.Do(req)
		if err != nil {
			return nil, err
		}
		return res.Body, nil
	}
}
