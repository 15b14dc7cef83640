// Generates weirv1, the stubs, from weir.proto: what protoc does, with the plugins that go.mod pins, and no protoc.
package main

import (
	"bytes"
	"context"
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
	source = "weir/v1/weir.proto"
	root   = "../../../proto"
	// Where the stubs are in this module. M overrides the file's go_package.
	options = "module=weir.example/client,M" + source + "=weir.example/client/weirv1"
)

func main() {
	resolver := protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root}})
	compiler := protocompile.Compiler{Resolver: resolver, SourceInfoMode: protocompile.SourceInfoStandard}
	files, err := compiler.Compile(context.Background(), source)
	check(err)
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{source},
		Parameter:      proto.String(options),
		ProtoFile:      withImports(nil, files[0]),
	}
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		run(plugin, request)
	}
}

// withImports appends a file behind all that it imports, as plugins want them.
func withImports(files []*descriptorpb.FileDescriptorProto, file protoreflect.FileDescriptor) []*descriptorpb.FileDescriptorProto {
	for i := range file.Imports().Len() {
		files = withImports(files, file.Imports().Get(i).FileDescriptor)
	}
	return append(files, protoutil.ProtoFromFileDescriptor(file))
}

func run(plugin string, request *pluginpb.CodeGeneratorRequest) {
	input, err := proto.Marshal(request)
	check(err)
	command := exec.Command("go", "tool", plugin)
	command.Stdin, command.Stderr = bytes.NewReader(input), os.Stderr
	output, err := command.Output()
	check(err)
	var response pluginpb.CodeGeneratorResponse
	check(proto.Unmarshal(output, &response))
	if response.Error != nil {
		log.Fatalf("%s: %s", plugin, response.GetError())
	}
	for _, file := range response.File {
		check(os.MkdirAll(filepath.Dir(file.GetName()), 0o755))
		check(os.WriteFile(file.GetName(), []byte(file.GetContent()), 0o644))
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
