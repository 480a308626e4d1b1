// Command filter asks the scheduler's own plugins on which of some idle nodes a pod may run, devices of claims aside.
package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodename"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeunschedulable"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/tainttoleration"

	"drawbridge.dev/tests/oracle/lines"
)

type question struct {
	Pod   *v1.Pod    `json:"pod"`
	Nodes []*v1.Node `json:"nodes"`
}

type answer struct {
	Nodes []string `json:"nodes"`
}

type maker func(context.Context, runtime.Object, fwk.Handle, feature.Features) (fwk.Plugin, error)

func main() {
	var filters []fwk.FilterPlugin
	for _, make := range []maker{nodename.New, nodeunschedulable.New, tainttoleration.New} {
		filters = append(filters, made(make, nil))
	}
	filters = append(filters, made(nodeaffinity.New, &config.NodeAffinityArgs{}))
	lines.Serve(func(q question) answer { return ask(q, filters) })
}

func made(make maker, args runtime.Object) fwk.FilterPlugin {
	plugin, err := make(context.Background(), args, nil, feature.Features{})
	if err != nil {
		panic(err)
	}
	return plugin.(fwk.FilterPlugin)
}

func ask(q question, filters []fwk.FilterPlugin) answer {
	a := answer{Nodes: []string{}}
	for _, node := range q.Nodes {
		info := framework.NewNodeInfo()
		info.SetNode(node)
		open := len(noderesources.Fits(q.Pod, info, nil, noderesources.ResourceRequestsOptions{})) == 0
		for _, filter := range filters {
			open = open && filter.Filter(context.Background(), framework.NewCycleState(), q.Pod, info).IsSuccess()
		}
		if open {
			a.Nodes = append(a.Nodes, node.Name)
		}
	}
	return a
}
