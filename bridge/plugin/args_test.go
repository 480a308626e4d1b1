package plugin

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
)

func TestWithoutArgumentsThePluginUsesTheDefaultSocket(t *testing.T) {
	for name, object := range map[string]runtime.Object{"none": nil, "empty": &runtime.Unknown{}} {
		args, err := argsOf(object)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if args.Socket != DefaultSocket || args.Address != "" || args.Timeout.Duration != 5*time.Second ||
			args.CommitTimeout.Duration != 30*time.Second || args.BindingTimeout.Duration != 10*time.Minute {
			t.Errorf("%s: got %+v", name, args)
		}
	}
}

func TestArgumentsAreReadAsJSONAndAsYAML(t *testing.T) {
	for _, text := range []string{
		`{"kind":"DrawbridgeArgs","address":"[::1]:9443","tokenFile":"/run/token","timeout":"2s","bindingTimeout":"1h"}`,
		"address: '[::1]:9443'\ntokenFile: /run/token\ntimeout: 2s\nbindingTimeout: 1h\n",
	} {
		args, err := argsOf(&runtime.Unknown{Raw: []byte(text)})
		if err != nil {
			t.Fatal(err)
		}
		if args.Socket != "" || args.Address != "[::1]:9443" || args.TokenFile != "/run/token" ||
			args.Timeout.Duration != 2*time.Second || args.BindingTimeout.Duration != time.Hour {
			t.Errorf("got %+v", args)
		}
	}
}

func TestTheErrorNamesTheInvalidArgument(t *testing.T) {
	for text, message := range map[string]string{
		`{"sockets": "/run/s"}`:                                                                    `unknown field "sockets"`,
		`{"timeout": 5}`:                                                                           "Drawbridge args",
		`{"timeout": "soon"}`:                                                                      "Drawbridge args",
		`{"socket": "run/s"}`:                                                                      `socket: Invalid value: "run/s": must be an absolute path`,
		`{"socket": "/` + strings.Repeat("s", 107) + `"}`:                                          "socket: Too long",
		`{"socket": "/s", "address": "127.0.0.1:1"}`:                                               "address: Forbidden: give either a socket or an address",
		`{"address": "127.0.0.1:1"}`:                                                               "tokenFile: Required value",
		`{"address": "127.0.0.1", "tokenFile": "/t"}`:                                              "address: Invalid value",
		`{"address": "127.0.0.1:0", "tokenFile": "/t"}`:                                            "address: Invalid value",
		`{"address": "10.0.0.1:9443", "tokenFile": "/t"}`:                                          "must be a loopback address",
		`{"address": "localhost:9443", "tokenFile": "/t"}`:                                         "must be a loopback address",
		`{"address": "127.0.0.1:9443", "tokenFile": "token"}`:                                      `tokenFile: Invalid value: "token": must be an absolute path`,
		`{"address": "10.0.0.1:9443", "tls": {"caFile": "/ca", "certFile": "/c"}}`:                 "tls.keyFile: Required value",
		`{"address": "10.0.0.1:9443", "tls": {"caFile": "ca", "certFile": "/c", "keyFile": "/k"}}`: `tls.caFile: Invalid value: "ca"`,
		`{"socket": "/s", "tls": {"caFile": "/ca", "certFile": "/c", "keyFile": "/k"}}`:            "tls: Forbidden: a socket needs no certificates",
		`{"address": ":9443", "tls": {"caFile": "/ca", "certFile": "/c", "keyFile": "/k"}}`:        "address: Invalid value",
		`{"address": "10.0.0.1:9443", "tls": {"insecure": true}}`:                                  `unknown field "insecure"`,
		`{"timeout": "0.05s"}`:                                                                     `timeout: Invalid value: "50ms": must be from 100ms to 1m0s`,
		`{"timeout": "-1s"}`:                                                                       "timeout: Invalid value",
		`{"commitTimeout": "1h"}`:                                                                  "commitTimeout: Invalid value",
		`{"bindingTimeout": "48h"}`:                                                                "bindingTimeout: Invalid value",
		`{"socket": "s", "timeout": "1h", "commitTimeout": "1h"}`:                                  "commitTimeout: Invalid value",
	} {
		_, err := argsOf(&runtime.Unknown{Raw: []byte(text)})
		if err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

func TestArgumentsOfAnotherPluginAreRefused(t *testing.T) {
	if _, err := argsOf(&schedulerconfig.DynamicResourcesArgs{}); err == nil {
		t.Error("the arguments were accepted")
	}
}

func TestWithMutualTLSAnAddressNeedNotBeLoopbackAndNeedsNoToken(t *testing.T) {
	text := `{"address":"allocator.example:9443","tls":{"caFile":"/ca","certFile":"/c","keyFile":"/k","serverName":"n"}}`
	args, err := argsOf(&runtime.Unknown{Raw: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	if *args.TLS != (TLSArgs{CAFile: "/ca", CertFile: "/c", KeyFile: "/k", ServerName: "n"}) || args.Socket != "" {
		t.Errorf("got %+v", args)
	}
}
