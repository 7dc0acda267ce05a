package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// oauthDemo is a server of tools that wants authorization, and the authorization server for it, on whose page a person agrees by opening it:
// oauthdemo FILE. It writes its URL to the file.
func oauthDemo() {
	s := mcp.NewServer(&mcp.Implementation{Name: "realm", Version: "1.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "hello"}, demo("hello "))
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	self := "http://" + ln.Addr().String()
	say := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer realm-token-1" {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+self+`/prm", scope="hello"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
	mux.HandleFunc("/prm", func(w http.ResponseWriter, _ *http.Request) {
		say(w, 200, map[string]any{"resource": self + "/mcp", "authorization_servers": []string{self}})
	})
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		say(w, 200, map[string]any{
			"issuer": self, "authorization_endpoint": self + "/authorize", "token_endpoint": self + "/token", "registration_endpoint": self + "/register",
			"code_challenge_methods_supported": []string{"S256"},
		})
	})
	mux.HandleFunc("/register", func(w http.ResponseWriter, _ *http.Request) {
		say(w, 201, map[string]any{"client_id": "skep-1"})
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query() // the code is the challenge, so that nothing is kept
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"state": {q.Get("state")}, "code": {q.Get("code_challenge")}}.Encode(), http.StatusFound)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		if base64.RawURLEncoding.EncodeToString(sum[:]) != r.FormValue("code") {
			say(w, 400, map[string]any{"error": "invalid_grant"})
			return
		}
		say(w, 200, map[string]any{"access_token": "realm-token-1", "token_type": "Bearer"})
	})
	if err := os.WriteFile(os.Args[1], []byte(self+"\n"), 0o600); err != nil {
		panic(err)
	}
	_ = http.Serve(ln, mux)
}

// browse opens a page as a browser does, and prints what is shown in the end: browse URL.
func browse() {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, os.Args[1], nil)
	if err != nil {
		panic(err)
	}
	req.Header.Set("Accept", "text/html")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer res.Body.Close()
	_, _ = io.Copy(os.Stdout, res.Body)
	if res.StatusCode != http.StatusOK {
		os.Exit(1)
	}
}
