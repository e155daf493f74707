package browser_test

import (
	"os"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const manifests = "../../../docs/guide/deploy/kubernetes.yaml"

// kinds are the manifests of the file.
type kinds struct {
	deployment apps.Deployment
	service    core.Service
	budget     policy.PodDisruptionBudget
}

// decode decodes the manifests as a server with strict field validation does: an
// unknown field, a duplicate one or a value of the wrong type is an error.
func decode(t *testing.T) (k kinds) {
	t.Helper()
	text, err := os.ReadFile(manifests)
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]any{"apps/v1 Deployment": &k.deployment, "v1 Service": &k.service, "policy/v1 PodDisruptionBudget": &k.budget}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var head struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			t.Fatal(err)
		}
		target, known := targets[head.APIVersion+" "+head.Kind]
		if !known {
			t.Fatalf("no type for %+v", head)
		}
		if err := yaml.UnmarshalStrict([]byte(document), target); err != nil {
			t.Errorf("%s: %v", head.Kind, err)
		}
		delete(targets, head.APIVersion+" "+head.Kind)
	}
	if len(targets) > 0 {
		t.Errorf("the file has none of %v", targets)
	}
	return k
}

func TestStrictDecodingRefusesAnUnknownField(t *testing.T) {
	var d apps.Deployment
	if yaml.UnmarshalStrict([]byte("spec: {replica: 2}"), &d) == nil || yaml.UnmarshalStrict([]byte("spec: {replicas: two}"), &d) == nil {
		t.Error("a mistake is accepted")
	}
}

func TestSelectorsMatchThePods(t *testing.T) {
	k := decode(t)
	pod := k.deployment.Spec.Template.Labels
	for name, selector := range map[string]map[string]string{
		"deployment": k.deployment.Spec.Selector.MatchLabels, "service": k.service.Spec.Selector, "budget": k.budget.Spec.Selector.MatchLabels,
		"spread": k.deployment.Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
	} {
		for key, value := range selector {
			if pod[key] != value {
				t.Errorf("%s selects %s=%s, the pods have %v", name, key, value, pod)
			}
		}
		if len(selector) == 0 {
			t.Errorf("%s selects everything", name)
		}
	}
}

func TestProbesAndTheServiceNamePortsOfTheContainer(t *testing.T) {
	k := decode(t)
	c := k.deployment.Spec.Template.Spec.Containers[0]
	ports := map[string]int32{}
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	for path, probe := range map[string]*core.Probe{"/startupz": c.StartupProbe, "/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		if probe.HTTPGet.Path != path || ports[probe.HTTPGet.Port.StrVal] != 9090 {
			t.Errorf("the probe of %s asks %+v", path, probe.HTTPGet)
		}
	}
	if target := k.service.Spec.Ports[0].TargetPort.StrVal; ports[target] != 8080 {
		t.Errorf("the service leads to %q", target)
	}
}

func TestPodsHaveTimeToStopAndMemory(t *testing.T) {
	pod := decode(t).deployment.Spec.Template.Spec
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; grace <= 30*time.Second {
		t.Errorf("a pod is killed after %v, and shutdown.timeout is 30s", grace)
	}
	resources := pod.Containers[0].Resources
	if resources.Limits.Memory().Cmp(*resources.Requests.Memory()) < 0 || !resources.Limits.Cpu().IsZero() {
		t.Errorf("resources: %+v", resources)
	}
}
