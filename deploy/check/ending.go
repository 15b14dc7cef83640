package main

import (
	"fmt"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// How a pod ends: what the settings say of it, and how long the kubelet waits.
type ending struct {
	settings *time.Duration
	grace    *time.Duration
}

// note looks for the two in an object: the ConfigMap with weir.yaml, and the Deployment.
func (end *ending) note(document []byte, kind string) error {
	switch kind {
	case "ConfigMap":
		var object core.ConfigMap
		if err := yaml.Unmarshal(document, &object); err != nil {
			return err
		}
		text, is := object.Data["weir.yaml"]
		if !is {
			return nil
		}
		var settings struct {
			Shutdown struct{ Delay, Timeout string }
		}
		if err := yaml.Unmarshal([]byte(text), &settings); err != nil {
			return err
		}
		delay, err := time.ParseDuration(settings.Shutdown.Delay)
		if err != nil {
			return fmt.Errorf("shutdown.delay: %w", err)
		}
		timeout, err := time.ParseDuration(settings.Shutdown.Timeout)
		if err != nil {
			return fmt.Errorf("shutdown.timeout: %w", err)
		}
		sum := delay + timeout
		end.settings = &sum
	case "Deployment":
		var object apps.Deployment
		if err := yaml.Unmarshal(document, &object); err != nil {
			return err
		}
		if seconds := object.Spec.Template.Spec.TerminationGracePeriodSeconds; seconds != nil {
			grace := time.Duration(*seconds) * time.Second
			end.grace = &grace
		}
	}
	return nil
}

func (end *ending) judge() error {
	if end.settings == nil || end.grace == nil {
		return fmt.Errorf("there are no settings of the shutdown, or no terminationGracePeriodSeconds")
	}
	if *end.grace <= *end.settings {
		return fmt.Errorf("pods are killed after %s, before shutdown.delay and shutdown.timeout are over (%s)", end.grace, end.settings)
	}
	return nil
}
