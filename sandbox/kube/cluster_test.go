package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox/kube/kubetest"
)

// files writes files into a new folder and returns it.
func files(t *testing.T, texts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// config is a kubeconfig with a cluster and a user of those fields.
func config(cluster, user string) string {
	return fmt.Sprintf(`{current-context: here, contexts: [{name: here, context: {cluster: c, user: u, namespace: mine}}, {name: lost, context: {cluster: gone, user: u}}, {name: nobody, context: {cluster: c, user: gone}}],
clusters: [{name: other, cluster: {server: "https://other"}}, {name: c, cluster: {%s}}], users: [{name: u, user: {%s}}]}`, cluster, user)
}

func TestKubeconfig(t *testing.T) {
	c := kubetest.New(t, "")
	server := fmt.Sprintf("server: %q", c.URL)
	data := base64.StdEncoding.EncodeToString(c.CA)
	for name, text := range map[string]string{
		"data":       config(server+", certificate-authority-data: "+data, "token: "+kubetest.Token),
		"file":       config(server+", certificate-authority: ca", "token: other, tokenFile: token"),
		"insecure":   config(server+", insecure-skip-tls-verify: true", "token: "+kubetest.Token),
		"other name": config(server+", tls-server-name: example.com, certificate-authority: ca", "token: "+kubetest.Token), // which httptest's certificate has
	} {
		dir := files(t, map[string]string{"config": text, "ca": string(c.CA), "token": kubetest.Token + "\n"})
		cluster, err := Kubeconfig(filepath.Join(dir, "config"), "")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if cluster.Namespace != "mine" {
			t.Errorf("%s: the namespace is %q", name, cluster.Namespace)
		}
		cluster.Namespace = kubetest.Namespace
		p, err := New(&Options{Cluster: cluster, Node: kubetest.Node})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Probe(t.Context()); !got.Ready {
			t.Errorf("%s: %s", name, got.Error)
		}
		p.Close()
	}
	good := config(server, "token: x")
	for _, tt := range []struct{ text, context, want string }{
		{"\t- no", "", "is no kubeconfig"},
		{"{}", "", "has no current context"},
		{good, "prod", `has no context "prod"`},
		{good, "lost", `has no cluster "gone"`},
		{good, "nobody", `has no user "gone"`},
		{config("", "token: x"), "", `has no cluster "c" with a server`},
		{config(server+", certificate-authority: gone", "token: x"), "", "certificate-authority"},
		{config(server+", certificate-authority-data: '!'", "token: x"), "", "certificate-authority"},
		{config(server, "client-certificate: ca"), "", "no certificate of the user"},
		{config(server, ""), "", "neither a token nor a certificate"},
		{config(server, "exec: {command: aws}"), "", "has a program find the credentials"},
		{config(server, "username: root, password: x"), "", "a password"},
	} {
		dir := files(t, map[string]string{"config": tt.text, "ca": string(c.CA)})
		_, err := Kubeconfig(filepath.Join(dir, "config"), tt.context)
		e := agent.AsError(err)
		if err == nil || e.Kind != agent.Invalid || !strings.Contains(e.Msg, tt.want) || e.Hint == "" {
			t.Errorf("%s %s: %v, want %q", tt.text, tt.context, err, tt.want)
		}
	}
}

// TestClientCertificate has a server that knows its clients by their certificates alone.
func TestClientCertificate(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	is := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	cert, err := x509.CreateCertificate(rand.Reader, is, is, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM([]byte(block("CERTIFICATE", cert)))
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"items":[]}`)) }))
	h.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	h.StartTLS()
	defer h.Close()
	dir := files(t, map[string]string{
		"config": config(fmt.Sprintf("server: %q, certificate-authority: ca", h.URL), "client-certificate: cert, client-key: key"),
		"ca":     block("CERTIFICATE", h.Certificate().Raw), "cert": block("CERTIFICATE", cert), "key": block("PRIVATE KEY", secret),
	})
	cluster, err := Kubeconfig(filepath.Join(dir, "config"), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, known := range []bool{true, false} {
		if !known {
			cluster.Certificate = nil
		}
		p, err := New(&Options{Cluster: cluster})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.List(t.Context(), "server-1"); (err == nil) != known {
			t.Errorf("with a certificate %v: %v", known, err)
		}
		p.Close()
	}
}

func TestHere(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err := Here()
	kind(t, "no cluster", err, agent.Invalid)
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	if _, err := os.Stat(account); err == nil {
		t.Skip("this is a pod")
	}
	_, err = Here()
	if kind(t, "no account", err, agent.Invalid); !strings.Contains(err.Error(), "automountServiceAccountToken") && agent.AsError(err).Hint == "" {
		t.Errorf("%v", err)
	}
}
