// Command network is CoreDNS with the one plugin that answers for Services of Kubernetes, and none of the others.
package main

import (
	_ "github.com/coredns/coredns/plugin/kubernetes"

	"github.com/coredns/coredns/coremain"
)

func main() {
	coremain.Run()
}
