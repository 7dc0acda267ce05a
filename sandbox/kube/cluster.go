package kube

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/skep-dev/skep/agent"
)

// Cluster says where an API server is, and who asks it.
type Cluster struct {
	Server     string // https://HOST:PORT
	ServerName string // that its certificate has; the host of Server unless given
	CA         []byte // PEM of who signed that certificate; whom this machine trusts unless given
	Insecure   bool   // it is not checked
	Namespace  string // default unless given

	Token       string           // of a bearer
	TokenFile   string           // the same, read for each request, for it changes
	Certificate *tls.Certificate // of a client
}

// account is where a pod finds its service account.
const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

// Here is the cluster that this process is a pod of, as its service account. An error is Invalid.
func Here() (Cluster, error) {
	host := os.Getenv("KUBERNETES_SERVICE_HOST")
	if host == "" {
		return Cluster{}, &agent.Error{Kind: agent.Invalid, Msg: "kubernetes: this process is in no cluster, and no kubeconfig is given", Hint: "give a kubeconfig: KUBECONFIG, or skep serve --sandbox-kubeconfig FILE"}
	}
	c := Cluster{Server: "https://" + net.JoinHostPort(host, cmp.Or(os.Getenv("KUBERNETES_SERVICE_PORT"), "443")), TokenFile: account + "token"}
	_, err := os.ReadFile(c.TokenFile)
	if err == nil {
		c.CA, err = os.ReadFile(account + "ca.crt")
	}
	if err != nil {
		return Cluster{}, &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("kubernetes: this pod has no service account: %v", err), Hint: "set automountServiceAccountToken in its spec"}
	}
	if namespace, err := os.ReadFile(account + "namespace"); err == nil {
		c.Namespace = strings.TrimSpace(string(namespace))
	}
	return c, nil
}

// kubeconfig is what is read of one (https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/).
type kubeconfig struct {
	Current  string `yaml:"current-context"`
	Contexts []struct {
		Name    string
		Context struct{ Cluster, User, Namespace string }
	}
	Clusters []struct {
		Name    string
		Cluster kubeCluster
	}
	Users []struct {
		Name string
		User kubeUser
	}
}

type kubeCluster struct {
	Server     string
	ServerName string `yaml:"tls-server-name"`
	CAFile     string `yaml:"certificate-authority"`
	CAData     string `yaml:"certificate-authority-data"`
	Insecure   bool   `yaml:"insecure-skip-tls-verify"`
}

type kubeUser struct {
	Token     string
	TokenFile string `yaml:"tokenFile"`
	CertFile  string `yaml:"client-certificate"`
	CertData  string `yaml:"client-certificate-data"`
	KeyFile   string `yaml:"client-key"`
	KeyData   string `yaml:"client-key-data"`
	Username  string
	Exec      any
	Provider  any `yaml:"auth-provider"`
}

// Kubeconfig reads a cluster from a file, by a context of it; the current one for "". Paths in it are below its own folder. An error is Invalid.
func Kubeconfig(file, context string) (Cluster, error) {
	bad := func(err error, hint, format string, args ...any) (Cluster, error) {
		return Cluster{}, &agent.Error{Kind: agent.Invalid, Msg: "kubernetes: the kubeconfig " + file + " " + fmt.Sprintf(format, args...), Err: err, Hint: hint}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return bad(err, "is it there, and may this user read it?", "cannot be read")
	}
	var k kubeconfig
	if err := yaml.Unmarshal(b, &k); err != nil {
		return bad(err, "kubectl config view --kubeconfig "+file, "is no kubeconfig: %v", err)
	}
	var names []string
	name := cmp.Or(context, k.Current)
	at := -1
	for i, c := range k.Contexts {
		names = append(names, c.Name)
		if c.Name == name {
			at = i
		}
	}
	switch {
	case name == "":
		return bad(nil, "skep serve --sandbox-context NAME; it has "+strings.Join(names, ", "), "has no current context, and none is named")
	case at < 0:
		return bad(nil, "it has "+strings.Join(names, ", "), "has no context %q", name)
	}
	of := k.Contexts[at].Context
	var cluster *kubeCluster
	for i := range k.Clusters {
		if k.Clusters[i].Name == of.Cluster {
			cluster = &k.Clusters[i].Cluster
		}
	}
	if cluster == nil || cluster.Server == "" {
		return bad(nil, "kubectl config set-cluster gives one", "has no cluster %q with a server, which the context %q names", of.Cluster, name)
	}
	var user *kubeUser
	for i := range k.Users {
		if k.Users[i].Name == of.User {
			user = &k.Users[i].User
		}
	}
	if user == nil {
		return bad(nil, "kubectl config set-credentials gives one", "has no user %q, whom the context %q names", of.User, name)
	}
	out := Cluster{Server: cluster.Server, ServerName: cluster.ServerName, Insecure: cluster.Insecure, Namespace: of.Namespace, Token: user.Token}
	pem := &pems{dir: filepath.Dir(file)}
	out.CA = pem.read("certificate-authority", cluster.CAFile, cluster.CAData)
	cert, key := pem.read("client-certificate", user.CertFile, user.CertData), pem.read("client-key", user.KeyFile, user.KeyData)
	if pem.err != nil {
		return bad(pem.err, "kubectl config view --flatten writes all that it needs into it", "lacks something: %v", pem.err)
	}
	if user.TokenFile != "" {
		out.Token, out.TokenFile = "", pem.path(user.TokenFile)
	}
	if cert != nil || key != nil {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return bad(err, "client-certificate and client-key belong together, as PEM", "has no certificate of the user %q that can be used: %v", of.User, err)
		}
		out.Certificate = &pair
	}
	if out.Token == "" && out.TokenFile == "" && out.Certificate == nil {
		what := "gives the user %q neither a token nor a certificate"
		if user.Exec != nil || user.Provider != nil {
			what = "has a program find the credentials of the user %q, which is not done here"
		} else if user.Username != "" {
			what = "gives the user %q a password, which API servers do not take any more"
		}
		return bad(nil, "make a service account for Skep, and give its token: kubectl create token NAME, or a secret of type kubernetes.io/service-account-token", what, of.User)
	}
	return out, nil
}

// pems reads what is in a kubeconfig or in a file beside it, and keeps the first error.
type pems struct {
	dir string
	err error
}

func (p *pems) path(file string) string {
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(p.dir, file)
}

func (p *pems) read(what, file, data string) []byte {
	var b []byte
	var err error
	switch {
	case data != "":
		b, err = base64.StdEncoding.DecodeString(data)
	case file != "":
		b, err = os.ReadFile(p.path(file))
	}
	if err != nil {
		p.err = cmp.Or(p.err, fmt.Errorf("%s: %w", what, err))
	}
	return b
}

// tls is how the server is checked, and who asks.
func (c *Cluster) tls() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName, InsecureSkipVerify: c.Insecure}
	if len(c.CA) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(c.CA) {
			return nil, &agent.Error{Kind: agent.Invalid, Msg: "kubernetes: there is no certificate in the authority of the API server", Err: errors.New("no PEM"), Hint: "it is the certificate-authority of its kubeconfig"}
		}
	}
	if c.Certificate != nil {
		config.Certificates = []tls.Certificate{*c.Certificate}
	}
	return config, nil
}
