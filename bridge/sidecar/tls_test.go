package sidecar

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// signer is the certificate and the key of an authority, or of a client or server whose certificate the authority has signed.
type signer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func issue(t *testing.T, name string, by *signer) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		BasicConstraintsValid: true,
		IsCA:                  by == nil,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:              []string{name},
	}
	parent := &signer{template, key}
	if by != nil {
		parent = by
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.certificate, &key.PublicKey, parent.key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{parsed, key}
}

func (s *signer) write(t *testing.T, certificate, key string) {
	t.Helper()
	writePEM(t, certificate, &pem.Block{Type: "CERTIFICATE", Bytes: s.certificate.Raw})
	if key == "" {
		return
	}
	der, err := x509.MarshalPKCS8PrivateKey(s.key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, key, &pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func writePEM(t *testing.T, path string, block *pem.Block) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
}

// tlsAllocator is an allocator that requires a client certificate, and the files of a scheduler with such a certificate.
type tlsAllocator struct {
	place      Place
	authority  *signer
	clientName atomic.Value // the name in the certificate of the last client
	server     *httptest.Server
}

func serveTLS(t *testing.T) *tlsAllocator {
	t.Helper()
	folder := t.TempDir()
	authority := issue(t, "authority", nil)
	serverCertificate := issue(t, "allocator", authority)
	allocator := &tlsAllocator{authority: authority}
	allocator.server = httptest.NewUnstartedServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		allocator.clientName.Store(request.TLS.PeerCertificates[0].Subject.CommonName)
		_, _ = response.Write([]byte(`{"leading":true,"ready":true}`))
	}))
	trusted := x509.NewCertPool()
	trusted.AddCert(authority.certificate)
	allocator.server.TLS = &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{serverCertificate.certificate.Raw}, PrivateKey: serverCertificate.key}},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    trusted,
	}
	allocator.server.StartTLS()
	t.Cleanup(allocator.server.Close)
	allocator.place = Place{Address: allocator.server.Listener.Addr().String(), TLS: &TLS{
		CAFile:   filepath.Join(folder, "ca"),
		CertFile: filepath.Join(folder, "cert"),
		KeyFile:  filepath.Join(folder, "key"),
	}}
	authority.write(t, allocator.place.TLS.CAFile, "")
	allocator.issueClientCertificate(t, "scheduler", authority)
	return allocator
}

func (s *tlsAllocator) issueClientCertificate(t *testing.T, name string, by *signer) {
	t.Helper()
	issue(t, name, by).write(t, s.place.TLS.CertFile, s.place.TLS.KeyFile)
}

func TestTheClientPresentsItsCertificate(t *testing.T) {
	allocator := serveTLS(t)
	client := clientOf(t, allocator.place, patient)
	if _, err := client.State(t.Context()); err != nil {
		t.Fatal(err)
	}
	if allocator.clientName.Load() != "scheduler" {
		t.Errorf("asked by %v", allocator.clientName.Load())
	}
}

func TestTheNextConnectionUsesARenewedCertificate(t *testing.T) {
	allocator := serveTLS(t)
	client := clientOf(t, allocator.place, patient)
	if _, err := client.State(t.Context()); err != nil {
		t.Fatal(err)
	}
	allocator.issueClientCertificate(t, "renewed", allocator.authority)
	allocator.server.CloseClientConnections()
	client.Close()
	if _, err := client.State(t.Context()); err != nil {
		t.Fatal(err)
	}
	if allocator.clientName.Load() != "renewed" {
		t.Errorf("asked by %v", allocator.clientName.Load())
	}
}

func TestAServerWithACertificateOfAnotherAuthorityGetsNoRequest(t *testing.T) {
	allocator := serveTLS(t)
	issue(t, "another", nil).write(t, allocator.place.TLS.CAFile, "")
	_, err := clientOf(t, allocator.place, patient).State(t.Context())
	if !isA[*Unreachable](err) || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("got %v", err)
	}
	if allocator.clientName.Load() != nil {
		t.Error("the server was called")
	}
}

func TestTheServerNameMustMatchTheCertificate(t *testing.T) {
	allocator := serveTLS(t)
	for name, fits := range map[string]bool{"allocator": true, "": true, "webhook": false} {
		allocator.place.TLS.ServerName = name
		_, err := clientOf(t, allocator.place, patient).State(t.Context())
		if fits != (err == nil) {
			t.Errorf("%q: got %v", name, err)
		}
	}
}

func TestAClientWithACertificateOfAnotherAuthorityIsRejected(t *testing.T) {
	allocator := serveTLS(t)
	allocator.issueClientCertificate(t, "scheduler", issue(t, "another", nil))
	_, err := clientOf(t, allocator.place, patient).State(t.Context())
	if !isA[*Unreachable](err) || !MayRecover(err) {
		t.Errorf("got %v", err)
	}
}

func TestTheErrorNamesAnUnusableTLSFile(t *testing.T) {
	for _, kind := range []string{"ca", "cert", "key"} {
		for content, words := range map[string]string{"": "", "nonsense": "PEM"} {
			allocator := serveTLS(t)
			path := filepath.Join(filepath.Dir(allocator.place.TLS.CAFile), kind)
			if content == "" {
				_ = os.Remove(path)
			} else if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := clientOf(t, allocator.place, patient).State(t.Context())
			if !isA[*Unreachable](err) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), words) {
				t.Errorf("%s %q: got %v", kind, content, err)
			}
		}
	}
}
