package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// compose loads a file, which is refused where it leaves the schema, and holds it to what it promises: images with a
// version, ports of this machine alone, health checks, and files that are there.
func compose(args []string) (string, error) {
	if len(args) != 1 {
		return "", errors.New(usage)
	}
	options, err := cli.NewProjectOptions(args, cli.WithWorkingDirectory(filepath.Dir(args[0])), cli.WithName("weir"))
	if err != nil {
		return "", err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return "", err
	}
	var wrong []error
	for _, name := range project.ServiceNames() {
		service := project.Services[name]
		for _, text := range serviceFaults(service) {
			wrong = append(wrong, fmt.Errorf("%s: %s", name, text))
		}
	}
	names := project.ServiceNames()
	slices.Sort(names)
	return fmt.Sprintf("%s: %d services (%s)", args[0], len(names), strings.Join(names, ", ")), errors.Join(wrong...)
}

func serviceFaults(service types.ServiceConfig) []string {
	var faults []string
	if service.HealthCheck == nil && service.Build == nil {
		faults = append(faults, "no health check")
	}
	if service.Build == nil {
		_, tag, found := strings.Cut(filepath.Base(service.Image), ":")
		if !found || tag == "latest" {
			faults = append(faults, fmt.Sprintf("image %s has no version", service.Image))
		}
	}
	for _, port := range service.Ports {
		if ip := net.ParseIP(port.HostIP); ip == nil || !ip.IsLoopback() {
			faults = append(faults, fmt.Sprintf("port %s is open to other machines", port.Published))
		}
	}
	for _, volume := range service.Volumes {
		if volume.Type != types.VolumeTypeBind {
			continue
		}
		if _, err := os.Stat(volume.Source); err != nil {
			faults = append(faults, err.Error())
		}
	}
	return faults
}
