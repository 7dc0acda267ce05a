//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/egress"
)

// granted is a guard of one grant, without secrets.
type granted struct{ target agent.Target }

func (g granted) Allow(_ context.Context, r agent.Request) error {
	if !g.target.Has(r) {
		return agent.Errorf(agent.Denied, "not granted")
	}
	return nil
}

func (granted) Sign(context.Context, *http.Request, agent.Request) (egress.Cleaner, error) {
	return nil, nil
}

// outbound is figure P17: CPU time of this process for a granted request to a server in another one, through the door and by a
// bare client, in rounds by turns.
func outbound(ctx context.Context, b *bench) ([]Figure, error) {
	s, err := b.ourServer(ctx)
	if err != nil {
		return nil, err
	}
	address := "http://" + s.addr + "/healthz"
	target, err := agent.ParseTarget("GET http://127.0.0.1:*/**")
	if err != nil {
		return nil, err
	}
	e := egress.New(&egress.Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
	defer e.Close()
	c := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	defer c.CloseIdleConnections()
	ask := &egress.Request{Owner: egress.Owner{App: agent.DefaultApp, Agent: "bench"}, URL: address, Header: [][2]string{{"accept", "*/*"}}}
	sides := [2]func() (io.ReadCloser, int, error){
		func() (io.ReadCloser, int, error) {
			res, err := e.Do(ctx, granted{target}, ask)
			if err != nil {
				return nil, 0, err
			}
			return res.Body, res.Status, nil
		},
		func() (io.ReadCloser, int, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
			if err != nil {
				return nil, 0, err
			}
			req.Header.Set("Accept", "*/*")
			res, err := c.Do(req)
			if err != nil {
				return nil, 0, err
			}
			return res.Body, res.StatusCode, nil
		},
	}
	const round = 200
	var took [2][]float64
	for range b.count(150, 30) {
		for i, do := range sides {
			before := processCPU()
			for range round {
				if err := fetchOnce(do); err != nil {
					return nil, err
				}
			}
			took[i] = append(took[i], (processCPU()-before).Seconds()/round)
		}
	}
	return []Figure{compare("P17", "granted request, CPU", Seconds, took[0], took[1], "bare net/http", Target{Bound: 1.25})}, nil
}

func fetchOnce(do func() (io.ReadCloser, int, error)) error {
	body, status, err := do()
	if err != nil {
		return err
	}
	defer body.Close()
	if status != http.StatusOK {
		return fmt.Errorf("the server answered %d", status)
	}
	_, err = io.Copy(io.Discard, body)
	return err
}
