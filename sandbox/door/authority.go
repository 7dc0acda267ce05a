package door

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
)

const (
	leafLife  = 7 * 24 * time.Hour
	early     = 24 * time.Hour // before now they begin, for clocks that are behind
	maxLeaves = 256
)

// authority signs the certificates that a box is shown (RFC 5280). It is in memory alone.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	leaf *ecdsa.PrivateKey // of all leaves: who has one has the process
	pem  string

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

// newAuthority makes the authority of a box. Of the same secret it is the same.
func newAuthority(box agent.SandboxID, secret []byte) (*authority, error) {
	a := &authority{leaves: map[string]*tls.Certificate{}}
	if err := a.make(box, secret); err != nil {
		return nil, agent.Wrap(agent.Internal, err, "the certificate authority of a sandbox cannot be made")
	}
	return a, nil
}

// Of certificates, which say nothing: an authority lives as long as its box.
var (
	authorityFrom  = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	authorityUntil = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
)

func (a *authority) make(box agent.SandboxID, secret []byte) (err error) {
	if a.key, err = authorityKey(box, secret); err != nil {
		return err
	}
	if a.leaf, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Skep sandbox " + string(box)}, NotBefore: authorityFrom, NotAfter: authorityUntil,
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(nil, t, t, &a.key.PublicKey, a.key) // without chance: of one secret it is always the same (RFC 6979)
	if err != nil {
		return err
	}
	a.pem = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	a.cert, err = x509.ParseCertificate(der)
	return err
}

// authorityKey makes a key of secret, or a random one.
func authorityKey(box agent.SandboxID, secret []byte) (*ecdsa.PrivateKey, error) {
	if secret == nil {
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	for i := 0; ; i++ { // what is no scalar of the curve comes once in 2³² times
		b, err := hkdf.Key(sha256.New, secret, nil, "authority "+string(box)+" "+strconv.Itoa(i), 32)
		if err != nil {
			return nil, err
		}
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), b); err == nil || i == 8 {
			return key, err
		}
	}
}

// certificate returns what a client is shown that wants host, a name or an address in its one form.
func (a *authority) certificate(host string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.leaves[host]; c != nil && time.Until(c.Leaf.NotAfter) > time.Hour {
		return c, nil
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: serial, NotBefore: now.Add(-early), NotAfter: now.Add(leafLife), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		t.IPAddresses = []net.IP{ip}
	} else {
		t.DNSNames = []string{host}
	}
	if len(host) <= 64 { // the most that a common name has
		t.Subject.CommonName = host
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, &a.leaf.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	c := &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: a.leaf}
	if c.Leaf, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	if len(a.leaves) >= maxLeaves {
		clear(a.leaves)
	}
	a.leaves[host] = c
	return c, nil
}
