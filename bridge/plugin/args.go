package plugin

import (
	"fmt"
	"net"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"drawbridge.dev/bridge/sidecar"
)

// DefaultSocket is where the allocator listens by default.
const DefaultSocket = "/run/drawbridge/allocator.sock"

// The longest path that fits into the kernel's socket address.
const maxSocketPath = 107

// Args are the plugin's part of a KubeSchedulerConfiguration: pluginConfig[name=Drawbridge].args.
type Args struct {
	metav1.TypeMeta `json:",inline"`

	// Socket is the path of the allocator's unix socket. Default: DefaultSocket, if there is no address.
	Socket string `json:"socket,omitempty"`
	// Address is host:port, instead of a socket. Without tls, the host must be a loopback IP address; with tls, it may be a name.
	Address string `json:"address,omitempty"`
	// TokenFile holds the bearer token for the address. It is read for each call.
	TokenFile string `json:"tokenFile,omitempty"`
	// TLS enables mutual TLS for the address.
	TLS *TLSArgs `json:"tls,omitempty"`

	// Timeout is the deadline of a call in the scheduling cycle. Default: 5s.
	Timeout metav1.Duration `json:"timeout,omitzero"`
	// CommitTimeout is the deadline of one call that writes claims. Default: 30s.
	CommitTimeout metav1.Duration `json:"commitTimeout,omitzero"`
	// BindingTimeout limits how long a pod waits for the binding conditions of its devices. Default: 10m.
	BindingTimeout metav1.Duration `json:"bindingTimeout,omitzero"`
}

// TLSArgs name files, which are read for each connection.
type TLSArgs struct {
	// CAFile holds the CAs of the allocator's certificate.
	CAFile string `json:"caFile,omitempty"`
	// CertFile and KeyFile are the scheduler's client certificate.
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
	// ServerName is the name in the allocator's certificate. Default: the address's host.
	ServerName string `json:"serverName,omitempty"`
}

// argsOf decodes, defaults and validates the arguments. Unknown fields are errors.
func argsOf(object runtime.Object) (*Args, error) {
	args := &Args{}
	if object != nil {
		unknown, ok := object.(*runtime.Unknown)
		if !ok {
			return nil, fmt.Errorf("%s args: want runtime.Unknown, got %T", Name, object)
		}
		if len(unknown.Raw) > 0 {
			if err := yaml.UnmarshalStrict(unknown.Raw, args); err != nil {
				return nil, fmt.Errorf("%s args: %w", Name, err)
			}
		}
	}
	args.complete()
	if problems := args.problems(); len(problems) > 0 {
		return nil, fmt.Errorf("%s args: %w", Name, problems.ToAggregate())
	}
	return args, nil
}

func (a *Args) complete() {
	if a.Socket == "" && a.Address == "" {
		a.Socket = DefaultSocket
	}
	for timeout, defaultTimeout := range map[*metav1.Duration]time.Duration{
		&a.Timeout:        5 * time.Second,
		&a.CommitTimeout:  30 * time.Second,
		&a.BindingTimeout: 10 * time.Minute,
	} {
		if timeout.Duration == 0 {
			timeout.Duration = defaultTimeout
		}
	}
}

func (a *Args) problems() field.ErrorList {
	var problems field.ErrorList
	if a.Socket != "" && a.Address != "" {
		problems = append(problems, field.Forbidden(field.NewPath("address"), "give either a socket or an address"))
	} else if a.Address != "" {
		problems = append(problems, addressProblems(a.Address, a.TLS != nil)...)
	} else {
		problems = append(problems, socketProblems(a.Socket)...)
	}
	token := field.NewPath("tokenFile")
	if a.Address != "" && a.TokenFile == "" && a.TLS == nil {
		problems = append(problems, field.Required(token, "without a token or tls, every process on the node can reach the address"))
	}
	if a.TokenFile != "" && !filepath.IsAbs(a.TokenFile) {
		problems = append(problems, field.Invalid(token, a.TokenFile, "must be an absolute path"))
	}
	problems = append(problems, a.tlsProblems()...)
	problems = append(problems, timeoutProblems("timeout", a.Timeout, time.Minute)...)
	problems = append(problems, timeoutProblems("commitTimeout", a.CommitTimeout, 10*time.Minute)...)
	problems = append(problems, timeoutProblems("bindingTimeout", a.BindingTimeout, 24*time.Hour)...)
	return problems
}

func socketProblems(socket string) field.ErrorList {
	path := field.NewPath("socket")
	if !filepath.IsAbs(socket) {
		return field.ErrorList{field.Invalid(path, socket, "must be an absolute path")}
	}
	if len(socket) > maxSocketPath {
		return field.ErrorList{field.TooLong(path, socket, maxSocketPath)}
	}
	return nil
}

func (a *Args) tlsProblems() field.ErrorList {
	if a.TLS == nil {
		return nil
	}
	path := field.NewPath("tls")
	var problems field.ErrorList
	if a.Address == "" {
		problems = append(problems, field.Forbidden(path, "a socket needs no certificates: give an address"))
	}
	for name, file := range map[string]string{"caFile": a.TLS.CAFile, "certFile": a.TLS.CertFile, "keyFile": a.TLS.KeyFile} {
		if file == "" {
			problems = append(problems, field.Required(path.Child(name), "mutual TLS needs caFile, certFile and keyFile"))
		} else if !filepath.IsAbs(file) {
			problems = append(problems, field.Invalid(path.Child(name), file, "must be an absolute path"))
		}
	}
	return problems
}

func addressProblems(address string, encrypted bool) field.ErrorList {
	path := field.NewPath("address")
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" || port == "0" {
		return field.ErrorList{field.Invalid(path, address, "must be an IP address and a port, as in 127.0.0.1:9443")}
	}
	// Unencrypted traffic must not leave the node.
	if ip := net.ParseIP(host); !encrypted && (ip == nil || !ip.IsLoopback()) {
		words := "must be a loopback address such as 127.0.0.1 or [::1], unless tls is given"
		return field.ErrorList{field.Invalid(path, address, words)}
	}
	return nil
}

func timeoutProblems(name string, timeout metav1.Duration, limit time.Duration) field.ErrorList {
	if timeout.Duration < 100*time.Millisecond || timeout.Duration > limit {
		words := fmt.Sprintf("must be from 100ms to %s", limit)
		return field.ErrorList{field.Invalid(field.NewPath(name), timeout.Duration.String(), words)}
	}
	return nil
}

func (a *Args) client() *sidecar.Client {
	place := sidecar.Place{Socket: a.Socket, Address: a.Address, TokenFile: a.TokenFile}
	if a.TLS != nil {
		files := sidecar.TLS(*a.TLS)
		place.TLS = &files
	}
	timeouts := sidecar.Timeouts{
		Call:   a.Timeout.Duration,
		Commit: a.CommitTimeout.Duration,
		State:  min(stateTimeout, a.Timeout.Duration),
	}
	return sidecar.New(place, timeouts)
}
