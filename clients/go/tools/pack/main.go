// Command pack packs the module's zip, as the module proxy would from a tag, into a directory that serves as a GOPROXY:
//
//	go -C tools run ./pack v0.2.0 /tmp/proxy
//	GOPROXY=file:///tmp/proxy,https://proxy.golang.org GONOSUMDB=github.com/OWNER/weir go get github.com/OWNER/weir/clients/go@v0.2.0
package main

import (
	"encoding/json"
	"log"
	"os"
	"path/filepath"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const (
	path   = "github.com/OWNER/weir/clients/go"
	source = ".."
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: pack VERSION DIRECTORY")
	}
	if err := pack(module.Version{Path: path, Version: os.Args[1]}, os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func pack(version module.Version, proxy string) error {
	escaped, err := module.EscapePath(version.Path)
	if err != nil {
		return err
	}
	base := filepath.Join(proxy, escaped, "@v")
	if err := os.MkdirAll(base, 0o755); err != nil {
		return err
	}
	archive, err := os.Create(filepath.Join(base, version.Version+".zip"))
	if err != nil {
		return err
	}
	defer archive.Close()
	if err := zip.CreateFromDir(archive, version, source); err != nil {
		return err
	}
	requirements, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(map[string]string{"Version": version.Version})
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{".mod": requirements, ".info": info} {
		if err := os.WriteFile(filepath.Join(base, version.Version+name), content, 0o644); err != nil {
			return err
		}
	}
	return archive.Close()
}
