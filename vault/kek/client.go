package kek

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/skep-dev/skep/agent"
)

const (
	serviceTimeout = 10 * time.Second
	maxAnswer      = 64 << 10
)

// client returns what reaches services. It follows no redirects, which would carry credentials elsewhere.
func (o *Opener) client() (*http.Client, error) {
	c := &http.Client{Timeout: serviceTimeout}
	if o.HTTP != nil {
		copied := *o.HTTP
		c = &copied
	} else {
		t := http.DefaultTransport.(*http.Transport).Clone()
		if file := o.env("VAULT_CACERT"); file != "" {
			pem, err := os.ReadFile(file)
			pool := x509.NewCertPool()
			if err != nil || !pool.AppendCertsFromPEM(pem) {
				return nil, agent.Wrap(agent.Invalid, err, "vault key: no certificate could be read from "+file+", which VAULT_CACERT names")
			}
			t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
		}
		c.Transport = t
	}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

// send returns the status and the body of an answer.
func send(c *http.Client, req *http.Request) (int, []byte, error) {
	res, err := c.Do(req)
	if err != nil {
		return 0, nil, unreached(req, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return 0, nil, unreached(req, err)
	}
	return res.StatusCode, b, nil
}

func unreached(req *http.Request, err error) error {
	return &agent.Error{Kind: agent.Unavailable, Msg: "vault key: " + req.URL.Host + " cannot be reached", Err: err, After: 5 * time.Second}
}
