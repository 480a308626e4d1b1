package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
	ownversion "k8s.io/component-base/version"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"
)

const (
	emulated = "emulated-version"
	// How long the scheduler waits for the API server at its start, before it exits and the kubelet restarts it.
	versionPatience = 30 * time.Second
)

// emulateServer makes the scheduler emulate the minor version of an older API server. Otherwise the scheduler would wait forever
// for kinds that this server does not have, and schedule nothing. An explicit --emulated-version takes precedence.
func emulateServer(command *cobra.Command) {
	before := command.PersistentPreRunE
	command.PersistentPreRunE = func(command *cobra.Command, args []string) error {
		flags := command.Flags()
		if !flags.Changed(emulated) && !flags.Changed("version") {
			info, err := serverVersion(flags.Lookup("config").Value.String(), flags.Lookup("kubeconfig").Value.String())
			if err != nil {
				return fmt.Errorf("--%s is not given, and the API server's version cannot be read: %w", emulated, err)
			}
			if minor := versionToEmulate(info); minor != "" {
				klog.InfoS("Emulating the version of the API server", "version", minor)
				if err := flags.Set(emulated, minor); err != nil {
					return err
				}
			}
		}
		return before(command, args)
	}
}

// versionToEmulate returns the server's minor version if it is older than this program's version, else "".
func versionToEmulate(info *apiversion.Info) string {
	reported := fmt.Sprintf("%s.%s", info.Major, info.Minor)
	if info.EmulationMajor != "" {
		reported = fmt.Sprintf("%s.%s", info.EmulationMajor, info.EmulationMinor)
	}
	server, err := version.ParseGeneric(reported) // a provider may write "35+"
	own := version.MustParse(ownversion.DefaultKubeBinaryVersion)
	if err != nil || !server.LessThan(own) {
		return ""
	}
	return fmt.Sprintf("%d.%d", server.Major(), server.Minor())
}

// serverVersion returns the version of the API server that the scheduler's configuration file or kubeconfig names.
func serverVersion(config, kubeconfig string) (*apiversion.Info, error) {
	if config != "" {
		var schedulerConfig struct {
			ClientConnection struct {
				Kubeconfig string `json:"kubeconfig"`
			} `json:"clientConnection"`
		}
		text, err := os.ReadFile(config)
		if err != nil {
			return nil, err
		}
		if err := yaml.Unmarshal(text, &schedulerConfig); err != nil {
			return nil, fmt.Errorf("%s: %w", config, err)
		}
		kubeconfig = schedulerConfig.ClientConnection.Kubeconfig
	}
	client, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	client.Timeout = 5 * time.Second
	server, err := discovery.NewDiscoveryClientForConfig(client)
	if err != nil {
		return nil, err
	}
	var info *apiversion.Info
	var lastErr error
	err = wait.PollUntilContextTimeout(context.Background(), time.Second, versionPatience, true, func(context.Context) (bool, error) {
		info, lastErr = server.ServerVersion()
		return lastErr == nil, nil
	})
	if err != nil {
		return nil, lastErr
	}
	return info, nil
}
