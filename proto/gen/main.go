// Command gen compiles the .proto files of this repository in pure Go and writes the Go code beside them.
//
// Usage, from the root of the repository: go run -C proto/gen . [-check]
//
// With -check nothing is written: it fails when a generated file is not what its .proto says.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

const module = "github.com/model-gateway/model-gateway/proto/"

// goPackages maps each file to its Go package. It is said here and not by an option in the
// files because the users' own proto must stay as it is, to the byte.
var goPackages = map[string]string{
	"ml/inference/inference.proto": module + "ml/inference;inferencepb",
	"triton/service.proto":         module + "triton;tritonpb",
	"triton/model_config.proto":    module + "triton;tritonpb",
}

func main() {
	check := flag.Bool("check", false, "write nothing; fail when a generated file is out of date")
	flag.Parse()
	stale, err := run("..", *check)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
	if len(stale) > 0 {
		fmt.Fprintf(os.Stderr, "gen: out of date: %s; run 'make gen' and commit the result\n", strings.Join(stale, ", "))
		os.Exit(1)
	}
}

// run generates the code of all files under dir and returns the names of files whose content
// differed from what was there, which it has written unless check is set.
func run(dir string, check bool) (stale []string, err error) {
	var names, params []string
	for name, pkg := range goPackages {
		names = append(names, name)
		params = append(params, "M"+name+"="+pkg)
	}
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{dir}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(context.Background(), names...)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
			changed, err := generate(dir, plugin, strings.Join(params, ","), file, check)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file.Path(), plugin, err)
			}
			stale = append(stale, changed...)
		}
	}
	if !check {
		stale = nil
	}
	return stale, nil
}

func generate(dir, plugin, params string, file protoreflect.FileDescriptor, check bool) (stale []string, err error) {
	params = "paths=source_relative," + params
	request, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{file.Path()}, Parameter: &params, ProtoFile: withImports(file),
	})
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(request), os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(output, &response); err != nil {
		return nil, err
	}
	if response.Error != nil {
		return nil, fmt.Errorf("%s", *response.Error)
	}
	for _, f := range response.File {
		path := filepath.Join(dir, f.GetName())
		if old, err := os.ReadFile(path); err == nil && string(old) == f.GetContent() {
			continue
		}
		stale = append(stale, f.GetName())
		if check {
			continue
		}
		if err := os.WriteFile(path, []byte(f.GetContent()), 0o644); err != nil {
			return nil, err
		}
	}
	return stale, nil
}

// withImports lists a file after all that it imports, as plugins want it.
func withImports(file protoreflect.FileDescriptor) []*descriptorpb.FileDescriptorProto {
	var out []*descriptorpb.FileDescriptorProto
	for i := range file.Imports().Len() {
		out = append(out, withImports(file.Imports().Get(i).FileDescriptor)...)
	}
	return append(out, protodesc.ToFileDescriptorProto(file))
}
