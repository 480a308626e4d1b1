// drawbridge-scheduler is kube-scheduler with the additional plugin Drawbridge, which calls `drawbridge allocator` to allocate devices.
//
// Flags, configuration file, metrics and health checks are those of kube-scheduler.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"drawbridge.dev/bridge/plugin"
)

func main() {
	command := app.NewSchedulerCommand(app.WithPlugin(plugin.Name, plugin.New))
	command.Use = "drawbridge-scheduler"
	emulateServer(command)
	os.Exit(cli.Run(command))
}
