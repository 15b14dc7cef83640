package main

import (
	"fmt"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// judgePods holds the pods that an object makes to the level "restricted" of the Pod Security Standards, and to what a
// Service called like the program would otherwise do to its settings.
func judgePods(object runtime.Object) error {
	template := podTemplate(object)
	if template == nil {
		return nil
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return err
	}
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	results := evaluator.EvaluatePod(restricted, &template.ObjectMeta, &template.Spec)
	if result := policy.AggregateCheckResults(results); !result.Allowed {
		return fmt.Errorf("not of the level restricted: %s", result.ForbiddenDetail())
	}
	for _, container := range template.Spec.Containers {
		security := container.SecurityContext
		if security == nil || security.ReadOnlyRootFilesystem == nil || !*security.ReadOnlyRootFilesystem {
			return fmt.Errorf("the root of container %s can be written", container.Name)
		}
		if container.Resources.Requests.Cpu().IsZero() || container.Resources.Limits.Memory().IsZero() {
			return fmt.Errorf("container %s has no CPU request or no memory limit", container.Name)
		}
	}
	if token := template.Spec.AutomountServiceAccountToken; token == nil || *token {
		return fmt.Errorf("the pod gets a token of the API server, which nothing in it needs")
	}
	if links := template.Spec.EnableServiceLinks; links == nil || *links {
		return fmt.Errorf("the pod gets a variable for each Service of its namespace")
	}
	return nil
}

func podTemplate(object runtime.Object) *core.PodTemplateSpec {
	switch object := object.(type) {
	case *apps.Deployment:
		return &object.Spec.Template
	case *apps.StatefulSet:
		return &object.Spec.Template
	case *batch.Job:
		return &object.Spec.Template
	case *core.Pod:
		return &core.PodTemplateSpec{ObjectMeta: object.ObjectMeta, Spec: object.Spec}
	default:
		return nil
	}
}
