package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	apiversion "k8s.io/apimachinery/pkg/version"
	ownversion "k8s.io/component-base/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func TestOnlyAnOlderServerIsEmulated(t *testing.T) {
	own := strings.TrimPrefix(ownversion.DefaultKubeBinaryVersion, "1.")
	for _, row := range []struct {
		reported apiversion.Info
		want     string
	}{
		{apiversion.Info{Major: "1", Minor: "34"}, "1.34"},
		{apiversion.Info{Major: "1", Minor: "35+"}, "1.35"},
		{apiversion.Info{Major: "1", Minor: own, EmulationMajor: "1", EmulationMinor: "36"}, "1.36"},
		{apiversion.Info{Major: "1", Minor: own}, ""},
		{apiversion.Info{Major: "1", Minor: "99"}, ""},
		{apiversion.Info{Major: "1", Minor: "99", EmulationMajor: "1", EmulationMinor: "99"}, ""},
		{apiversion.Info{}, ""},
	} {
		if got := versionToEmulate(&row.reported); got != row.want {
			t.Errorf("%+v: %q, want %q", row.reported, got, row.want)
		}
	}
}

// The version comes from the server that the scheduler's configuration names. With an explicit version, there is no request.
func TestTheVersionOfTheConfiguredServerIsEmulated(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
		asked++
		answer.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(answer).Encode(apiversion.Info{Major: "1", Minor: "35"})
	}))
	defer server.Close()
	folder := t.TempDir()
	kubeconfig, config := filepath.Join(folder, "kubeconfig"), filepath.Join(folder, "scheduler.yaml")
	write(t, kubeconfig, "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: "+server.URL+"}}]\n")
	write(t, config, "clientConnection: {kubeconfig: "+kubeconfig+"}\n")
	for _, row := range []struct {
		flags string
		want  string
		asked int
	}{
		{"--config=" + config, "1.35", 1},
		{"--kubeconfig=" + kubeconfig, "1.35", 1},
		{"--config=" + config + " --emulated-version=1.36", "1.36", 0},
	} {
		asked = 0
		command := app.NewSchedulerCommand()
		command.PersistentPreRunE = func(*cobra.Command, []string) error { return nil } // sets gates of the whole process
		emulateServer(command)
		if err := command.ParseFlags(strings.Fields(row.flags)); err != nil {
			t.Fatal(err)
		}
		if err := command.PersistentPreRunE(command, nil); err != nil {
			t.Fatal(err)
		}
		if got := command.Flags().Lookup(emulated).Value.String(); !strings.Contains(got, row.want) || asked != row.asked {
			t.Errorf("%s: %q after %d questions, want %q after %d", row.flags, got, asked, row.want, row.asked)
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
