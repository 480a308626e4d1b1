package sidecar

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
)

// TLS names the files for mutual TLS with the allocator. They are read for each connection, because certificates are
// renewed.
type TLS struct {
	CAFile     string // the CAs of the allocator's certificate
	CertFile   string // the scheduler's client certificate
	KeyFile    string
	ServerName string // the name in the allocator's certificate; by default the host of the address
}

func (t *TLS) dial(dialer *net.Dialer) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		config, err := t.config()
		if err != nil {
			return nil, err
		}
		// Without a ServerName, the dialer verifies the address's host. The context limits the handshake.
		greeting := &tls.Dialer{NetDialer: dialer, Config: config}
		return greeting.DialContext(ctx, network, address)
	}
}

func (t *TLS) config() (*tls.Config, error) {
	authorities, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("%s contains no PEM certificate", t.CAFile)
	}
	clientCertificate, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", t.CertFile, t.KeyFile, err)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		RootCAs:      trusted,
		Certificates: []tls.Certificate{clientCertificate},
		ServerName:   t.ServerName,
	}, nil
}
