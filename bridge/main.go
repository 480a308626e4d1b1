// drawbridge-scheduler is kube-scheduler with one more plugin, Drawbridge, that asks the allocator beside it for devices.
//
// Flags, configuration file, metrics and health checks are kube-scheduler's own. What decides is `drawbridge allocator`.
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
