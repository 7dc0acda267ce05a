package ws

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

func newMask() (m [4]byte) {
	rand.Read(m[:])
	return m
}

const keyGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11" // section 1.3

func acceptOf(key string) string {
	sum := sha1.Sum([]byte(key + keyGUID))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// Refused is a server's answer to a handshake that is no WebSocket. Its body is in memory, up to 64 KiB.
type Refused struct{ Response *http.Response }

func (e *Refused) Error() string { return "websocket: the server answered " + e.Response.Status }

// Dial opens a connection to a ws, wss, http or https URL. A server that refuses gives a *Refused.
func Dial(ctx context.Context, target string, h http.Header, o *Options) (*Conn, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("websocket: %w", err)
	}
	secure := u.Scheme == "wss" || u.Scheme == "https"
	addr := u.Host
	if u.Port() == "" {
		addr = net.JoinHostPort(u.Hostname(), map[bool]string{false: "80", true: "443"}[secure])
	}
	var nc net.Conn
	if secure {
		nc, err = (&tls.Dialer{Config: &tls.Config{NextProtos: []string{"http/1.1"}}}).DialContext(ctx, "tcp", addr)
	} else {
		nc, err = (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("websocket: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	c, err := handshake(nc, u, h, o)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return c, nil
}

func handshake(nc net.Conn, u *url.URL, h http.Header, o *Options) (*Conn, error) {
	var nonce [16]byte
	rand.Read(nonce[:])
	key := base64.StdEncoding.EncodeToString(nonce[:])
	req := &http.Request{Method: "GET", URL: u, Host: u.Host, Header: h.Clone(), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("Upgrade", "websocket")
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Sec-WebSocket-Version", "13")
	req.Header.Set("Sec-WebSocket-Key", key)
	if err := req.Write(nc); err != nil {
		return nil, fmt.Errorf("websocket: %w", err)
	}
	br := bufio.NewReaderSize(nc, bufferSize)
	res, err := http.ReadResponse(br, req)
	if err != nil {
		return nil, fmt.Errorf("websocket: %w", err)
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
		res.Body.Close()
		res.Body = io.NopCloser(bytes.NewReader(body))
		return nil, &Refused{res}
	}
	if !strings.EqualFold(res.Header.Get("Upgrade"), "websocket") || res.Header.Get("Sec-WebSocket-Accept") != acceptOf(key) {
		return nil, fmt.Errorf("websocket: the server's handshake is not valid")
	}
	c := newConn(nc, true, o)
	if br.Buffered() > 0 {
		c.br = br
	}
	return c, nil
}
