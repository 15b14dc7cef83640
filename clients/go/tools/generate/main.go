// Command generate generates the package weirv1 from proto/weir/v1/weir.proto, as protoc does, with the plugins that go.mod pins.
//
//	go -C tools run ./generate          writes it to the module
//	go -C tools run ./generate -check   fails if the module has something else
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

const (
	source     = "weir/v1/weir.proto"
	importPath = "../../../proto"
	module     = "github.com/OWNER/weir/clients/go"
	// M overrides the file's go_package.
	options = "module=" + module + ",M" + source + "=" + module + "/weirv1"
	output  = ".."
)

func main() {
	log.SetFlags(0)
	check := flag.Bool("check", false, "compare instead of writing")
	flag.Parse()
	write := writeFile
	if *check {
		write = compareFile
	}
	if err := generate(write); err != nil {
		log.Fatal(err)
	}
}

func generate(write func(path, content string) error) error {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{importPath}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(context.Background(), source)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{source},
		Parameter:      proto.String(options),
		ProtoFile:      withImports(nil, files[0]),
	}
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		response, err := run(plugin, request)
		if err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
		for _, file := range response.File {
			if err := write(filepath.Join(output, file.GetName()), file.GetContent()); err != nil {
				return err
			}
		}
	}
	return nil
}

// withImports appends a file after all of its imports, the order that plugins expect.
func withImports(files []*descriptorpb.FileDescriptorProto, file protoreflect.FileDescriptor) []*descriptorpb.FileDescriptorProto {
	for i := range file.Imports().Len() {
		files = withImports(files, file.Imports().Get(i).FileDescriptor)
	}
	return append(files, protoutil.ProtoFromFileDescriptor(file))
}

func run(plugin string, request *pluginpb.CodeGeneratorRequest) (*pluginpb.CodeGeneratorResponse, error) {
	input, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	command := exec.Command("go", "tool", plugin)
	command.Stdin, command.Stderr = bytes.NewReader(input), os.Stderr
	encoded, err := command.Output()
	if err != nil {
		return nil, err
	}
	response := &pluginpb.CodeGeneratorResponse{}
	if err := proto.Unmarshal(encoded, response); err != nil {
		return nil, err
	}
	if response.Error != nil {
		return nil, fmt.Errorf("%s", response.GetError())
	}
	return response, nil
}

func writeFile(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o644)
}

func compareFile(path, content string) error {
	present, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if string(present) != content {
		return fmt.Errorf("%s is not what %s generates: go -C tools run ./generate", path, source)
	}
	return nil
}
