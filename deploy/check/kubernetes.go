package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	machineryyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/core/configmap"
	"k8s.io/kubernetes/pkg/registry/core/namespace"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/secret"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/core/serviceaccount"
	"k8s.io/kubernetes/pkg/registry/networking/networkpolicy"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"sigs.k8s.io/yaml"
)

// The steps that the API server takes before it creates an object, but for admission.
var strategies = map[string]rest.RESTCreateStrategy{
	"ConfigMap":               configmap.Strategy,
	"Deployment":              deployment.Strategy,
	"HorizontalPodAutoscaler": horizontalpodautoscaler.Strategy,
	"Job":                     job.Strategy,
	"Namespace":               namespace.Strategy,
	"NetworkPolicy":           networkpolicy.Strategy,
	"PersistentVolumeClaim":   persistentvolumeclaim.Strategy,
	"Pod":                     pod.Strategy,
	"PodDisruptionBudget":     poddisruptionbudget.Strategy,
	"Secret":                  secret.Strategy,
	"Service":                 service.Strategy,
	"ServiceAccount":          serviceaccount.Strategy,
	"StatefulSet":             statefulset.Strategy,
}

// The kinds of the Prometheus operator: their fields are judged, by its types; what else its definitions say is not.
var monitoringKinds = map[string]func() any{
	"ServiceMonitor": func() any { return new(monitoring.ServiceMonitor) },
	"PrometheusRule": func() any { return new(monitoring.PrometheusRule) },
}

var strict = serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)

func kubernetes([]string) (string, error) {
	documents := machineryyaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	var wrong []error
	var seen []string
	end := new(ending)
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
		var header struct {
			schema.GroupVersionKind
			APIVersion string
			Metadata   struct{ Name string }
		}
		if err := yaml.Unmarshal(document, &header); err != nil {
			return "", err
		}
		if header.Kind == "" {
			continue
		}
		name := header.Kind + " " + header.Metadata.Name
		seen = append(seen, name)
		if err := judge(document, header.Kind); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
		}
		if err := end.note(document, header.Kind); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
		}
	}
	wrong = append(wrong, end.judge())
	if len(seen) == 0 {
		return "", errors.New("no objects")
	}
	return fmt.Sprintf("%d objects: %s", len(seen), strings.Join(seen, ", ")), errors.Join(wrong...)
}

func judge(document []byte, kind string) error {
	if make := monitoringKinds[kind]; make != nil {
		return yaml.UnmarshalStrict(document, make())
	}
	strategy := strategies[kind]
	if strategy == nil {
		return errors.New("no strategy for this kind; add it to this program")
	}
	written, _, err := strict.UniversalDeserializer().Decode(document, nil, nil)
	if err != nil {
		return err
	}
	if err := judgePods(written); err != nil {
		return err
	}
	internal, err := runtime.Decode(strict.UniversalDecoder(), document)
	if err != nil {
		return err
	}
	return judgeCreation(strategy, internal, written)
}

func judgeCreation(strategy rest.RESTCreateStrategy, object, written runtime.Object) error {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	if accessor.GetNamespace() == "" && strategy.NamespaceScoped() {
		accessor.SetNamespace("default")
	}
	// What the server fills in where it gives addresses.
	if service, is := object.(*core.Service); is && service.Spec.ClusterIP != "" {
		service.Spec.ClusterIPs = []string{service.Spec.ClusterIP}
	}
	rest.FillObjectMetaSystemFields(accessor)
	context := request.WithNamespace(context.Background(), accessor.GetNamespace())
	kind := written.GetObjectKind().GroupVersionKind()
	context = request.WithRequestInfo(context, &request.RequestInfo{APIGroup: kind.Group, APIVersion: kind.Version})
	if err := rest.BeforeCreate(strategy, context, object); err != nil {
		return err
	}
	if warnings := strategy.WarningsOnCreate(context, object); len(warnings) > 0 {
		return errors.New("the API server would warn: " + strings.Join(warnings, "; "))
	}
	return nil
}
