package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

const (
	maxTargets      = 100 // of one model
	maxTensors      = 64  // inputs of one model, or outputs
	maxDims         = 16
	maxHeaders      = 32
	maxHeaderValue  = 4096
	maxHeaderName   = 128
	targetInHeaders = "{target}"
)

func (c *compiler) models(files []ModelFile) {
	first := make(map[string]int, len(files))
	for i := range files {
		f, path := &files[i], fmt.Sprintf("models[%d]", i)
		if c.mistaken(path) { // it is no mapping at all
			continue
		}
		m := Model{Name: f.Name, UpstreamModel: cmp.Or(f.Model, f.Name), Stable: f.Stable, Pins: f.Pins}
		c.modelName(path+".name", f.Name)
		if f.Model != "" {
			c.check(path+".model", checkModelName(f.Model))
		}
		if j, ok := first[f.Name]; ok && f.Name != "" {
			c.wrong(path+".name", "%s is the name of models[%d] already", clip(f.Name), j)
		} else {
			first[f.Name] = i
		}
		m.Upstream = c.upstreamOf(path+".upstream", f.Upstream, "")
		c.targets(path, f, &m)
		if len(m.Targets) == 0 && m.Upstream == "" && f.Upstream == "" && len(f.Targets) == 0 {
			c.needsUpstream(path)
		}
		c.stable(path+".stable", &m, f)
		c.pins(path+".pins", &m)
		c.split(path+".split", f.Split, &m)
		m.Mirror = c.mirror(path+".mirror", f.Mirror, &m)
		m.Timeouts = c.timeouts(path+".timeout", f.Timeout, c.cfg.Defaults)
		m.SLO = c.slo(path+".slo", f.SLO, m.Timeouts.Max)
		m.Breaker = c.modelBreaker(path+".breaker", f.Breaker, m.SLO)
		m.ProbeInfer = probes(f.Probe, c.cfg.ProbeInfer)
		m.Pick = c.pick(path+".pick", f.Pick, c.cfg.Pick)
		m.Retry = c.retry(path+".retry", f.Retry, c.cfg.Retry)
		m.Concurrency = c.concurrency(path+".concurrency", f.Concurrency)
		m.PassPriority = f.PassPriority
		m.Tensors = c.tensors(path+".tensors", f.Tensors)
		m.Limits = c.limits(path+".limits", f.Limits, &m)
		m.SetHeaders = c.setHeaders(path+".set_headers", f.SetHeaders)
		c.headersOnce(path+".set_headers", &m)
		c.cfg.Models = append(c.cfg.Models, m)
	}
}

// check reports err, if any, as the mistake of a field.
func (c *compiler) check(path string, err error) {
	if err != nil && !c.mistaken(path) {
		c.wrong(path, "%s", err)
	}
}

func (c *compiler) modelName(path, name string) {
	if !c.has(path) {
		c.check(path, errors.New("must be given"))
		return
	}
	c.check(path, checkModelName(name))
}

// upstreamOf gives the upstream that a field names, else def, else the only one, else "".
func (c *compiler) upstreamOf(path, name, def string) string {
	if name != "" {
		if _, ok := c.cfg.Upstream(name); ok {
			return name
		}
		names := make([]string, len(c.cfg.Upstreams))
		for i, u := range c.cfg.Upstreams {
			names[i] = u.Name
		}
		hint := didYouMean(name, names)
		if hint == "" && len(names) > 0 {
			hint = "; there is " + strings.Join(few(names), ", ")
		}
		if len(names) > 0 {
			c.check(path, fmt.Errorf("%s is no upstream%s", clip(name), hint))
		}
		return ""
	}
	if def == "" && len(c.cfg.Upstreams) == 1 {
		return c.cfg.Upstreams[0].Name
	}
	return def
}

func (c *compiler) needsUpstream(path string) {
	if len(c.cfg.Upstreams) > 1 {
		c.check(path+".upstream", errors.New("must name one of the upstreams, for there are several"))
	}
}

// targets compiles the targets of a model, in the file's order.
func (c *compiler) targets(path string, f *ModelFile, m *Model) {
	path += ".targets"
	names := c.order[path]
	if len(names) > maxTargets {
		c.wrong(path, "has %d entries; at most %d", len(names), maxTargets)
		return
	}
	for _, name := range names {
		at, tf := join(path, name), f.Targets[name]
		if err := checkName(name); err != nil {
			c.bad(c.at(at).key, at, "%s", err)
		}
		t := Target{Name: name, Model: cmp.Or(tf.Model, m.UpstreamModel)}
		t.Upstream = c.upstreamOf(at+".upstream", tf.Upstream, m.Upstream)
		if t.Upstream == "" && tf.Upstream == "" && f.Upstream == "" {
			c.needsUpstream(at)
		}
		if tf.Model != "" {
			c.check(at+".model", checkModelName(tf.Model))
		}
		if c.has(at + ".version") {
			t.Version = setting(c, at+".version", tf.Version, "", "", Version.parse)
		} else {
			c.check(at+".version", errors.New("must be given: the version's number on the upstream"))
		}
		for _, o := range m.Targets {
			if o.Upstream == t.Upstream && o.Model == t.Model && o.Version == t.Version && t.Version != "" && t.Upstream != "" {
				c.check(at, fmt.Errorf("is the same version of the same model as %s; remove one of the two", join(path, o.Name)))
			}
		}
		m.Targets = append(m.Targets, t)
	}
}

func (c *compiler) stable(path string, m *Model, f *ModelFile) {
	names := make([]string, len(m.Targets))
	for i, t := range m.Targets {
		names[i] = t.Name
	}
	switch {
	case m.Stable == "" && len(names) == 1:
		m.Stable = names[0]
	case m.Stable == "" && len(names) > 1:
		c.check(path, fmt.Errorf("must name the target of calls that nothing sends elsewhere: %s", oneOf(few(names))))
	case m.Stable == "" || slices.Contains(names, m.Stable):
	case len(names) == 0 && len(f.Targets) == 0:
		c.check(path, errors.New("names a target, but the model declares no targets; declare them, or remove it"))
	default:
		c.check(path, fmt.Errorf("%s is no target of this model; use %s", clip(m.Stable), oneOf(few(names))))
	}
}

// pins compiles which versions callers may name.
func (c *compiler) pins(path string, m *Model) {
	switch {
	case len(m.Targets) == 0 && m.Pins == PinsDeclared:
		c.check(path, errors.New("is declared, but the model declares no targets, so no version could be named; declare targets, or remove it"))
	case len(m.Targets) == 0:
		m.Pins = PinsAny
	case m.Pins == "":
		m.Pins = PinsDeclared
	}
	if m.Pins != PinsAny {
		return
	}
	// A version that a caller pins becomes target model_v<version>, which must not be the name of another one.
	for _, t := range m.Targets {
		v, ok := strings.CutPrefix(t.Name, "model_v")
		if _, err := Version(v).parse(); ok && err == nil && t.Version != "" && v != t.Version {
			c.check(path, fmt.Errorf("is any, so target %s must be version %s, not %s; give the target another name", t.Name, v, t.Version))
		}
	}
}

// tensors compiles the section `tensors`; nil when there is none.
//
// Inputs are required: Predict never mixes what is declared with what an upstream's metadata says.
func (c *compiler) tensors(path string, f *TensorsFile) *inference.Tensors {
	if f == nil {
		return nil
	}
	t := &inference.Tensors{Output: f.Output}
	if c.has(path + ".output") {
		c.check(path+".output", checkTensorName(f.Output))
	}
	if len(f.Inputs) == 0 {
		c.check(path+".inputs", errors.New("must list the inputs, each with name, datatype and shape; or remove tensors, and the upstream's metadata tells"))
	}
	t.Inputs = c.tensorList(path+".inputs", "an input", f.Inputs)
	t.Outputs = c.tensorList(path+".outputs", "an output", f.Outputs)
	if c.has(path+".outputs") && len(f.Outputs) == 0 {
		c.check(path+".outputs", errors.New("must list the outputs, each with name, datatype and shape; or remove it, and the upstream's metadata tells"))
	}
	c.isOutput(path+".output", f.Output, t.Outputs)
	if f.Confidence != nil {
		t.Confidence = inference.Confidence{Output: f.Confidence.Output, Reduce: f.Confidence.Reduce}
		if c.has(path + ".confidence.output") {
			c.check(path+".confidence.output", checkTensorName(f.Confidence.Output))
		}
		c.isOutput(path+".confidence.output", f.Confidence.Output, t.Outputs)
	}
	return t
}

// tensorList compiles a list of tensors, each of which is called kind.
func (c *compiler) tensorList(path, kind string, files []TensorFile) []inference.Tensor {
	if len(files) > maxTensors {
		c.check(path, fmt.Errorf("has %d entries; at most %d", len(files), maxTensors))
		return nil
	}
	var all []inference.Tensor
	for i, f := range files {
		at := fmt.Sprintf("%s[%d]", path, i)
		c.check(at+".name", checkTensorName(f.Name))
		if slices.ContainsFunc(all, func(o inference.Tensor) bool { return o.Name == f.Name }) && f.Name != "" {
			c.check(at+".name", fmt.Errorf("%s is the name of %s already", clip(f.Name), kind))
		}
		if !c.has(at + ".datatype") {
			c.check(at+".datatype", errors.New("must be given, such as FP32"))
		}
		c.shape(at+".shape", f.Shape)
		all = append(all, inference.Tensor{Name: f.Name, Datatype: f.Datatype, Shape: f.Shape})
	}
	return all
}

// isOutput checks that a field names one of the outputs, where these are declared.
func (c *compiler) isOutput(path, name string, outputs []inference.Tensor) {
	if name == "" || len(outputs) == 0 || slices.ContainsFunc(outputs, func(o inference.Tensor) bool { return o.Name == name }) {
		return
	}
	names := make([]string, len(outputs))
	for i, o := range outputs {
		names[i] = o.Name
	}
	c.check(path, fmt.Errorf("%s is none of tensors.outputs; use %s", clip(name), oneOf(few(names))))
}

func checkTensorName(name string) error {
	if name == "" {
		return errors.New("must be the tensor's name on the upstream")
	}
	return checkModelName(name)
}

func (c *compiler) shape(path string, shape []int64) {
	if !c.has(path) || len(shape) == 0 {
		c.check(path, errors.New("must be a list of sizes with the batch first, such as [-1, 16]"))
		return
	}
	if len(shape) > maxDims {
		c.check(path, fmt.Errorf("has %d sizes; at most %d", len(shape), maxDims))
		return
	}
	product := int64(1)
	for i, d := range shape {
		at := fmt.Sprintf("%s[%d]", path, i)
		if d == 0 || d < -1 {
			c.check(at, errors.New("must be a size above zero, or -1 for any"))
			continue
		}
		// Sizes are 31 bits each, so the product cannot wrap before it is seen.
		if product *= max(d, 1); product > maxSize {
			c.check(path, errors.New("is more than one message can hold"))
			return
		}
	}
}

// setHeaders compiles the section `set_headers`; nil when there is none.
func (c *compiler) setHeaders(path string, headers map[string]string) map[string]string {
	if len(headers) == 0 {
		return nil
	}
	if len(headers) > maxHeaders {
		c.check(path, fmt.Errorf("has %d entries; at most %d", len(headers), maxHeaders))
		return nil
	}
	for _, name := range c.order[path] {
		at := join(path, name)
		if err := checkHeaderName(name); err != nil && !c.mistaken(at) {
			c.bad(c.at(at).key, at, "%s", err)
			continue
		}
		c.check(at, checkHeaderValue(headers[name]))
	}
	return maps.Clone(headers)
}

// reservedHeaders belong to the transport, to the gateway, or are credentials; reservedPrefixes too. What the gateway
// drops from clients' metadata, nobody sets.
var (
	reservedHeaders = set(
		"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "te", "trailer", "trailers",
		"host", "content-length", "content-type", "content-encoding", "accept-encoding", "accept", "user-agent", "expect",
		"authorization", "x-api-key", "proxy-authorization", "proxy-authenticate", "cookie",
		"x-request-id", "x-trace-id", "x-user-id", "traceparent", "tracestate", "x-request-timeout",
		"inference-header-content-length",
	)
	reservedPrefixes = []string{"grpc-", "x-gateway-", "triton-grpc-protocol-"}
)

func checkHeaderName(name string) error {
	switch {
	case name == "" || len(name) > maxHeaderName || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "":
		if lower := strings.ToLower(name); lower != name && checkHeaderName(lower) == nil {
			return fmt.Errorf("must be in lower case: %s", lower)
		}
		return errors.New("is no name of metadata: use lower-case letters, digits, dashes, dots and underscores")
	case strings.HasSuffix(name, "-bin"):
		return errors.New("ends in -bin, which is for binary values; give it another name")
	case reservedHeaders[name] || slices.ContainsFunc(reservedPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }):
		return errors.New("is reserved: the gateway or the transport sets it; give it another name")
	}
	return nil
}

func checkHeaderValue(value string) error {
	if len(value) > maxHeaderValue {
		return fmt.Errorf("must be at most %d bytes", maxHeaderValue)
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
		return errors.New("must be printable ASCII")
	}
	if rest := strings.ReplaceAll(value, targetInHeaders, ""); strings.ContainsAny(rest, "{}") {
		return errors.New("has braces around something else than {target}, the one word that is replaced")
	}
	return nil
}
