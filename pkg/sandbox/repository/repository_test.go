package repository

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"

	tritonmodels "github.com/model-gateway/model-gateway/triton-models"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const echoConfig = `backend: "python" input { name: "INPUT" data_type: TYPE_FP32 dims: -1 } output { name: "OUTPUT" data_type: TYPE_FP32 dims: -1 } `

// folder is a repository with one model that has a twin, in versions 1, 2, 3 and 10.
func folder(config string) *Repository {
	files := fstest.MapFS{"echo_fp32/config.pbtxt": {Data: []byte(config)}, "echo_fp32/README": {}, "echo_fp32/04/model.py": {}, "echo_fp32/x/model.py": {}}
	for _, v := range []string{"1", "2", "3", "10"} {
		files["echo_fp32/"+v+"/model.py"] = &fstest.MapFile{}
	}
	return New(files)
}

func TestEveryModelOfTheProjectLoadsAndWarmsUp(t *testing.T) {
	r := New(tritonmodels.FS)
	names, err := r.Names()
	if err != nil || len(names) < 6 {
		t.Fatalf("%v %v", names, err)
	}
	for _, name := range names {
		m, err := r.Load(name, Override{})
		if err == nil {
			err = m.Warm(context.Background())
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheVersionPolicyChoosesAmongTheFolders(t *testing.T) {
	for policy, want := range map[string][]int64{
		``:                                   {10},
		`latest { num_versions: 2 }`:         {3, 10},
		`latest { num_versions: 99 }`:        {1, 2, 3, 10},
		`all { }`:                            {1, 2, 3, 10},
		`specific { versions: [ 2, 1, 7 ] }`: {1, 2},
	} {
		config := echoConfig
		if policy != "" {
			config += "version_policy { " + policy + " }"
		}
		m, err := folder(config).Load("echo_fp32", Override{})
		if err != nil || !slices.Equal(m.Versions, want) {
			t.Errorf("%q: %+v %v, want %v", policy, m, err, want)
		}
	}
	_, err := folder(echoConfig+`version_policy { specific { versions: [ 7 ] } }`).Load("echo_fp32", Override{})
	var poll *PollError
	if !errors.As(err, &poll) || !strings.Contains(err.Error(), "[1 2 3 10]") {
		t.Errorf("no version: %v", err)
	}
}

func TestAConfigurationTheSandboxCannotKeepIsRefusedByItsField(t *testing.T) {
	for config, names := range map[string]string{
		`nonsense: 1`:                "nonsense",
		echoConfig + `name: "other"`: `"other"`,
		`input { name: "A" data_type: TYPE_FP32 dims: 1 }`:                                          "backend",
		echoConfig + `max_batch_size: -1`:                                                           "max_batch_size",
		echoConfig + `instance_group { kind: KIND_GPU }`:                                            "instance_group",
		echoConfig + `instance_group { count: 1000 }`:                                               "instance_group",
		echoConfig + `ensemble_scheduling { step { model_name: "x" } }`:                             "ensemble_scheduling",
		echoConfig + `input { name: "INPUT" data_type: TYPE_FP32 dims: 1 }`:                         `input "INPUT"`,
		echoConfig + `input { name: "B" dims: 1 }`:                                                  "data_type",
		echoConfig + `output { name: "B" data_type: TYPE_FP32 }`:                                    "dims",
		echoConfig + `output { name: "B" data_type: TYPE_FP32 dims: [ 1, -2 ] }`:                    "dims",
		echoConfig + `output { name: "B" data_type: TYPE_FP32 dims: 1 label_filename: "none.txt" }`: "label_filename",
		echoConfig + `version_policy { latest { num_versions: 0 } }`:                                "version_policy",
	} {
		_, err := folder(config).Load("echo_fp32", Override{})
		var poll *PollError
		if !errors.As(err, &poll) || !strings.Contains(err.Error(), names) {
			t.Errorf("%s: %v does not name %s", config, err, names)
		}
	}
}

func TestAModelThatCannotRunIsRefusedAtLoad(t *testing.T) {
	fraud, err := fs.ReadFile(tritonmodels.FS, "fraud/1/model.onnx")
	if err != nil {
		t.Fatal(err)
	}
	io := func(input, output string) string {
		return `backend: "onnxruntime" max_batch_size: 4 input { ` + input + ` } output { ` + output + ` }`
	}
	in, out := `name: "INPUT" data_type: TYPE_FP32 dims: 16`, `name: "SCORE" data_type: TYPE_FP32 dims: 1`
	for name, c := range map[string]struct {
		config string
		file   []byte
		names  string
	}{
		"no file":            {io(in, out), nil, "1/model.onnx"},
		"no ONNX":            {io(in, out), []byte("hello"), "onnx"},
		"another input":      {io(`name: "X" data_type: TYPE_FP32 dims: 16`, out), fraud, `"X"`},
		"another type":       {io(`name: "INPUT" data_type: TYPE_INT64 dims: 16`, out), fraud, "FP32 only"},
		"another output":     {io(in, `name: "Y" data_type: TYPE_FP32 dims: 1`), fraud, `"Y"`},
		"unknown backend":    {`backend: "tensorrt"`, fraud, "backend 'tensorrt'"},
		"unknown python":     {`backend: "python"`, fraud, "no twin"},
		"warm-up that fails": {io(`name: "INPUT" data_type: TYPE_FP32 dims: 15`, out) + ` model_warmup { name: "w" batch_size: 1 inputs { key: "INPUT" value { data_type: TYPE_FP32 dims: 15 } } }`, fraud, `model_warmup "w"`},
	} {
		files := fstest.MapFS{"m/config.pbtxt": {Data: []byte(c.config)}, "m/1/other": {}}
		if c.file != nil {
			files["m/1/model.onnx"] = &fstest.MapFile{Data: c.file}
		}
		m, err := New(files).Load("m", Override{})
		if err == nil {
			err = m.Warm(context.Background())
		}
		var version *VersionError
		if !errors.As(err, &version) || version.Version != 1 || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s: %v does not name %s", name, err, c.names)
		}
	}
}

func TestALoadMayBringConfigurationAndFiles(t *testing.T) {
	fraud, err := fs.ReadFile(tritonmodels.FS, "fraud/1/model.onnx")
	if err != nil {
		t.Fatal(err)
	}
	config := `{"backend":"onnxruntime","max_batch_size":3,"input":[{"name":"INPUT","data_type":"TYPE_FP32","dims":[16]}],"output":[{"name":"SCORE","data_type":"TYPE_FP32","dims":[1]}]}`
	r := New(fstest.MapFS{})
	m, err := r.Load("pushed", Override{Config: config, Files: map[string][]byte{"7/model.onnx": fraud}})
	if err != nil || !slices.Equal(m.Versions, []int64{7}) || m.Config.MaxBatchSize != 3 {
		t.Errorf("%+v %v", m, err)
	}
	if _, err := r.Load("pushed", Override{Files: map[string][]byte{"7/model.onnx": fraud}}); err == nil {
		t.Error("files without a configuration were taken")
	}
}

func TestNamesThatLeaveTheFolderAreRefused(t *testing.T) {
	for _, name := range []string{"", ".", "..", "../x", "a/b", "/etc"} {
		if _, err := folder(echoConfig).Load(name, Override{}); err == nil {
			t.Errorf("%q was loaded", name)
		}
	}
}

func TestADigestChangesWithTheFiles(t *testing.T) {
	a, err := folder(echoConfig).Digest("echo_fp32")
	b, err2 := folder(echoConfig).Digest("echo_fp32")
	c, err3 := folder(echoConfig + " ").Digest("echo_fp32")
	if err := errors.Join(err, err2, err3); err != nil || a != b || a == c {
		t.Errorf("%v, equal %v, changed %v", err, a == b, a != c)
	}
	if _, err := folder(echoConfig).Digest("none"); err == nil {
		t.Error("a model that is not there has a digest")
	}
}

// collect runs one request and gives its answers.
func collect(b Backend, r *Request) (outs [][]Tensor, errs []*Error) {
	done := make(chan struct{})
	if r.Context == nil {
		r.Context = context.Background()
	}
	r.Send = func(outputs []Tensor, err *Error, final bool) {
		if err != nil {
			errs = append(errs, err)
		} else if outputs != nil {
			outs = append(outs, outputs)
		}
		if final {
			close(done)
		}
	}
	b.Execute([]*Request{r})
	<-done
	return outs, errs
}

func TestTheTextTwinScoresAsItsDefinitionSays(t *testing.T) {
	raw, err := os.ReadFile("../../../triton-models/text/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g struct {
		Cases []struct {
			Name    string
			Inputs  struct{ TEXT struct{ Data []string } }
			Outputs struct{ SCORE struct{ Data []float64 } }
		}
	}
	if err := json.Unmarshal(raw, &g); err != nil || len(g.Cases) < 3 {
		t.Fatal(err, len(g.Cases))
	}
	m, err := New(tritonmodels.FS).Load("text", Override{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range g.Cases {
		in := Tensor{Name: "TEXT", Datatype: "BYTES", Shape: []int64{int64(len(c.Inputs.TEXT.Data)), 1}}
		for _, s := range c.Inputs.TEXT.Data {
			in.Data = append(in.Data, String(s)...)
		}
		outs, errs := collect(m.Backends[1], &Request{Inputs: []Tensor{in}})
		if len(errs) > 0 || len(outs) != 1 {
			t.Fatalf("%s: %v", c.Name, errs)
		}
		got := appendFloats(nil, outs[0][0].Data)
		for i, want := range c.Outputs.SCORE.Data {
			if i >= len(got) || math.Abs(float64(got[i])-want) > 1e-6 {
				t.Errorf("%s: got %v, want %v", c.Name, got, c.Outputs.SCORE.Data)
				break
			}
		}
	}
}

func TestATokenStreamStopsWhenItsCallerIsGone(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	number := func(name string, v byte) Tensor {
		return Tensor{Name: name, Datatype: "INT32", Shape: []int64{1}, Data: []byte{v, 0, 0, 0}}
	}
	b, _ := newTokens(nil, 1)
	r := &Request{Context: ctx, Inputs: []Tensor{number("N", 200), number("DELAY_MS", 255)}}
	done := make(chan int, 1)
	sent := 0
	r.Send = func(_ []Tensor, _ *Error, final bool) {
		if final {
			done <- sent
			return
		}
		sent++
		cancel()
	}
	b.Execute([]*Request{r})
	if n := <-done; n != 1 {
		t.Errorf("%d tokens, want 1", n)
	}
}

// FuzzConfig loads models of arbitrary configurations: whatever comes in, Load answers, and what it accepts can be completed
// a second time without change.
func FuzzConfig(f *testing.F) {
	for _, name := range []string{"fraud", "cnn", "seqsum", "tokens", "text", "echo"} {
		b, err := fs.ReadFile(tritonmodels.FS, name+"/config.pbtxt")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b), "")
	}
	f.Add("", `{"backend":"python","input":[{"name":"A","data_type":"TYPE_FP32","dims":["-1"]}]}`)
	f.Fuzz(func(t *testing.T, pbtxt, override string) {
		m, err := folder(pbtxt).Load("echo_fp32", Override{Config: override})
		if err != nil {
			return
		}
		if len(m.Versions) == 0 || len(m.Config.InstanceGroup) == 0 || m.Config.VersionPolicy.GetPolicyChoice() == nil {
			t.Errorf("accepted but not complete: %v", m.Config)
		}
		if err := validate(m.Config); err != nil {
			t.Errorf("accepted and then refused: %v", err)
		}
	})
}
