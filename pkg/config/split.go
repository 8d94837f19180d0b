package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

const (
	maxSplit      = 100   // rules of one model
	maxValues     = 1_000 // of one condition
	maxValue      = 1_024 // bytes of one
	maxSalt       = 256   // bytes
	maxTargetName = 64
)

// split compiles the rules of a model. It stands before everything that names rules' targets has been checked, and after
// the targets.
func (c *compiler) split(path string, files []SplitRuleFile, m *Model) {
	m.Scripted = len(m.Targets) == 0 && !c.has(path) && inference.IsScriptName(m.Name)
	if len(files) > maxSplit {
		c.check(path, fmt.Errorf("has %d entries; at most %d", len(files), maxSplit))
		return
	}
	always := "" // the first rule that leaves nothing to those behind it
	for i := range files {
		at := fmt.Sprintf("%s[%d]", path, i)
		if c.mistaken(at) {
			continue
		}
		found := len(c.found)
		r := c.splitRule(at, &files[i], m)
		good := len(c.found) == found
		if always != "" {
			c.check(at, fmt.Errorf("is never asked: %s has no condition and decides for every call before it; put it last, or remove this one", always))
		} else if same := covered(m.Split, r.When); same >= 0 && good && len(m.Targets) > 0 {
			c.check(at+".when", fmt.Errorf("never decides: %s[%d] is for the same calls and stands before it; remove one of the two", path, same))
		}
		if r.When == nil && r.Script == "" && always == "" {
			always = at
		}
		m.Split = append(m.Split, r)
	}
}

// covered gives the rule before that is for all calls that a condition is for, and has an answer for each; -1 when there is
// none.
func covered(before []SplitRule, w *When) int {
	if w == nil || len(w.Values) == 0 {
		return -1
	}
	return slices.IndexFunc(before, func(r SplitRule) bool {
		o := r.When
		if o == nil || r.Script != "" || o.Header != w.Header || o.Metadata != w.Metadata || o.Who != w.Who {
			return false
		}
		switch {
		case o.Op == WhenIs && w.Op == WhenIs:
			return !slices.ContainsFunc(w.Values, func(v string) bool { return !slices.Contains(o.Values, v) })
		case o.Op == WhenPrefix && w.Op != WhenRegex:
			return !slices.ContainsFunc(w.Values, func(v string) bool { return !strings.HasPrefix(v, o.Values[0]) })
		}
		return o.Op == w.Op && slices.Equal(o.Values, w.Values)
	})
}

func (c *compiler) splitRule(at string, f *SplitRuleFile, m *Model) SplitRule {
	r := SplitRule{To: f.To, Place: c.placeOf(at)}
	if c.blank[at+".when"] {
		// As good as absent it would be a rule for every call, which is the last that was meant.
		c.check(at, errors.New("has a when that says nothing: give it a condition, such as {header: x-user-type, is: premium}, or remove it, for a rule for every call"))
	}
	if c.has(at + ".when") {
		r.When = c.when(at+".when", f.When)
	}
	var answers []string
	for _, name := range []string{"to", "script", "weights"} {
		if c.has(at + "." + name) {
			answers = append(answers, name)
		}
	}
	switch {
	case len(answers) == 0:
		c.check(at, errors.New("must say where calls go: to: a target, weights of targets, or a script"))
	case len(answers) > 1:
		c.check(at, fmt.Errorf("has %s; a rule has one of to, script and weights; write them as rules of their own", strings.Join(answers, " and ")))
	}
	if c.has(at + ".to") {
		c.targetName(at+".to", f.To, m)
	}
	if c.has(at + ".script") {
		r.Script = c.scriptName(at+".script", f.Script)
		r.Place = c.placeOf(at + ".script")
	}
	if c.has(at + ".weights") {
		r.Weights = c.weights(at+".weights", f.Weights, m)
		r.Salt = m.Name
	}
	if c.has(at + ".salt") {
		r.Salt = f.Salt
		switch {
		case !c.has(at + ".weights"):
			c.check(at+".salt", errors.New("is for weights, and this rule has none; remove it"))
		case f.Salt == "" || len(f.Salt) > maxSalt || strings.ContainsFunc(f.Salt, isControl):
			c.check(at+".salt", fmt.Errorf("must be a text of at most %d bytes, such as the experiment's name; without it the model's name is taken", maxSalt))
		}
	}
	r.SetHeaders = c.setHeaders(at+".set_headers", f.SetHeaders)
	c.headersOnce(at+".set_headers", &Model{Upstream: m.Upstream, Targets: m.Targets, SetHeaders: r.SetHeaders})
	r.Name = ruleName(&r)
	return r
}

// ruleName is how people tell the rule from others.
func ruleName(r *SplitRule) string {
	name := ""
	switch {
	case r.Script != "":
		name = "script " + r.Script
	case len(r.Weights) > 0:
		name = "weights"
	case r.When == nil:
		return "always"
	}
	if r.When != nil {
		if name != "" {
			name += " if "
		}
		name += r.When.subject()
	}
	return name
}

// targetName checks the name of a target that a field sends calls to.
func (c *compiler) targetName(path, name string, m *Model) {
	if len(m.Targets) == 0 {
		if _, ok := ImplicitVersion(name); !ok {
			c.check(path, fmt.Errorf("%s is no target: a model without declared targets has model_v1 for version 1, model_v2 for version 2 and so on", clip(name)))
		}
		return
	}
	names := make([]string, len(m.Targets))
	for i, t := range m.Targets {
		names[i] = t.Name
	}
	if !slices.Contains(names, name) {
		hint := didYouMean(name, names)
		if hint == "" {
			hint = "; use " + oneOf(few(names))
		}
		c.check(path, fmt.Errorf("%s is no target of this model%s", clip(name), hint))
	}
}

// ImplicitVersion gives the version that an implicit target's name stands for: "2" for model_v2.
func ImplicitVersion(target string) (version string, ok bool) {
	v, ok := strings.CutPrefix(target, "model_v")
	if !ok {
		return "", false
	}
	version, err := Version(v).parse()
	return version, err == nil
}

// weights compiles the shares of a rule, in the file's order.
func (c *compiler) weights(path string, file map[string]float64, m *Model) []Weight {
	names := c.order[path]
	if len(names) == 0 {
		c.check(path, errors.New("must give shares of 100 to targets, such as {model_v1: 95, model_v2: 5}"))
		return nil
	}
	if len(names) > maxTargets {
		c.check(path, fmt.Errorf("has %d entries; at most %d", len(names), maxTargets))
		return nil
	}
	var all []Weight
	sum, good := 0.0, true
	for _, name := range names {
		at, share := join(path, name), file[name]
		c.targetKey(at, name, m)
		if c.mistaken(at) {
			good = false
			continue
		}
		if stands := c.at(at); stands.value == stands.key { // the name alone
			c.check(at, errors.New("must be a share of 100"))
			good = false
			continue
		}
		if !(share >= 0 && share <= 100) {
			c.check(at, errors.New("must be a share from 0 to 100"))
			good = false
			continue
		}
		sum += share
		all = append(all, Weight{name, share})
	}
	if good && math.Abs(sum-100) > 1e-9 {
		c.check(path, fmt.Errorf("add up to %s and must add up to 100; %s", shortest(sum), balance(sum)))
	}
	return all
}

// targetKey is targetName for a key of a mapping.
func (c *compiler) targetKey(at, name string, m *Model) {
	if c.mistaken(at) {
		return
	}
	found := len(c.found)
	c.targetName(at, name, m)
	if len(c.found) > found { // it is the key that is wrong, not what it holds
		if key := c.at(at).key; key != nil {
			last := &c.found[len(c.found)-1]
			last.Line, last.Col, last.Excerpt = key.Line, key.Column, excerpt(c.lines, key.Line, key.Column)
		}
	}
}

func balance(sum float64) string {
	if sum < 100 {
		return fmt.Sprintf("give the %s that are left to a target, such as the stable one", shortest(100-sum))
	}
	return fmt.Sprintf("take %s from them", shortest(sum-100))
}

func shortest(v float64) string { return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'f', -1, 64) }

// when compiles a condition; nil when there is none that could be.
func (c *compiler) when(path string, f *WhenFile) *When {
	if f == nil || c.mistaken(path) {
		return nil
	}
	w := &When{Header: strings.ToLower(f.Header), Metadata: f.Metadata, Who: f.Who}
	c.whenSubject(path, f)
	ops := c.given(path, "is", "in", "prefix", "regex")
	switch {
	case len(ops) == 0:
		c.check(path, errors.New("says nothing about the value: add is, in, prefix or regex"))
		return w
	case len(ops) > 1:
		c.check(path, fmt.Errorf("has %s; a condition has one of is, in, prefix and regex", strings.Join(ops, " and ")))
		return w
	}
	at := path + "." + ops[0]
	switch ops[0] {
	case "is":
		w.Op, w.Values = WhenIs, []string{f.Is}
	case "in":
		w.Op, w.Values = WhenIs, f.In
	case "prefix":
		w.Op, w.Values = WhenPrefix, []string{f.Prefix}
	case "regex":
		w.Op, w.Values = WhenRegex, []string{f.Regex}
		if _, err := regexp.Compile(f.Regex); err != nil {
			c.check(at, fmt.Errorf("is no regular expression of RE2: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: ")))
		}
	}
	c.whenValues(at, w.Values)
	return w
}

// given lists those of some fields that are there.
func (c *compiler) given(path string, names ...string) []string {
	return slices.DeleteFunc(names, func(n string) bool { return !c.has(path + "." + n) })
}

func (c *compiler) whenSubject(path string, f *WhenFile) {
	subjects := c.given(path, "header", "metadata", "who")
	switch {
	case len(subjects) == 0:
		c.check(path, errors.New("must say what it is about: header: a name, metadata: a key of the message, or who: user or caller"))
	case len(subjects) > 1:
		c.check(path, fmt.Errorf("has %s; a condition is about one of them; write two rules", strings.Join(subjects, " and ")))
	case f.Header != "" || c.has(path+".header"):
		c.check(path+".header", checkWhenHeader(f.Header))
	case f.Who == "caller" && len(c.cfg.Callers) == 0:
		c.check(path+".who", errors.New("is caller, and none are declared; declare callers, or use who: user"))
	case c.has(path + ".metadata"):
		switch {
		case f.Metadata == "" || len(f.Metadata) > maxValue:
			c.check(path+".metadata", fmt.Errorf("must be a key of the message's metadata, of at most %d bytes", maxValue))
		case f.Metadata == "user_id":
			c.check(path+".metadata", errors.New("is what the client says of the user; use who: user, which is the one that counts"))
		}
	}
}

// checkWhenHeader says why a header could never meet a condition.
func checkWhenHeader(name string) error {
	lower := strings.ToLower(name)
	switch {
	case lower == "x-user-id":
		return errors.New("is what the client says of the user; use who: user, which is the one that counts")
	case lower == "authorization" || lower == "x-api-key" || lower == "cookie" || lower == "proxy-authorization" || strings.HasPrefix(lower, "triton-grpc-protocol-"):
		return errors.New("is a credential, which no rule gets to see; use who: caller")
	case lower == "user-agent" || lower == "x-request-id" || lower == "x-trace-id":
		return nil
	}
	switch err := checkHeaderName(lower); {
	case err == nil:
		return nil
	case strings.HasSuffix(lower, "-bin"):
		return errors.New("ends in -bin: its values are binary, and a condition compares text; use another header")
	case reservedHeaders[lower] || slices.ContainsFunc(reservedPrefixes, func(p string) bool { return strings.HasPrefix(lower, p) }):
		return errors.New("is one of the transport's, which no rule gets to see; use another header")
	default:
		return err
	}
}

func (c *compiler) whenValues(path string, values []string) {
	if len(values) == 0 {
		c.check(path, errors.New("must list the values, such as [eu, us]"))
		return
	}
	if len(values) > maxValues {
		c.check(path, fmt.Errorf("has %d entries; at most %d; a script can look further", len(values), maxValues))
		return
	}
	seen := make(map[string]bool, len(values))
	for i, v := range values {
		at := path
		if entry := fmt.Sprintf("%s[%d]", path, i); c.has(entry) {
			at = entry
		}
		switch {
		case v == "":
			c.check(at, errors.New("must not be empty"))
		case len(v) > maxValue:
			c.check(at, fmt.Errorf("must be at most %d bytes", maxValue))
		case seen[v]:
			c.check(at, fmt.Errorf("%s is in the list already", clip(v)))
		}
		seen[v] = true
	}
}

// mirror compiles where copies of calls go; nil when nowhere.
func (c *compiler) mirror(path string, f *MirrorFile, m *Model) *Mirror {
	if f == nil || c.mistaken(path) {
		return nil
	}
	if !c.has(path + ".to") {
		c.check(path+".to", errors.New("must name the target that gets copies"))
	} else {
		c.targetName(path+".to", f.To, m)
		if f.To == m.Stable && f.To != "" && len(m.Split) == 0 {
			c.check(path+".to", fmt.Errorf("%s is where all calls go anyway; mirror to another target", clip(f.To)))
		}
	}
	if !c.has(path + ".percent") {
		c.check(path+".percent", errors.New("must be given: how many of 100 calls are copied"))
	} else if !(f.Percent > 0 && f.Percent <= 100) {
		c.check(path+".percent", errors.New("must be above 0 and at most 100; remove mirror to copy nothing"))
	}
	return &Mirror{To: f.To, Percent: f.Percent}
}

// placeOf notes where a field stands, for what is found out about it later.
func (c *compiler) placeOf(path string) Place {
	p := Place{Path: path}
	if at := c.at(path).value; at != nil {
		p.Line, p.Col = at.Line, at.Column
	}
	return p
}

// placeScripts shows the lines of rules that are scripts, once it is known what must not be shown.
func (r *reader) placeScripts(cfg *Config) {
	for i := range cfg.Models {
		for j := range cfg.Models[i].Split {
			if rule := &cfg.Models[i].Split[j]; rule.Script != "" {
				rule.Place.Excerpt = r.withoutSecrets(excerpt(r.lines, rule.Place.Line, rule.Place.Col))
			}
		}
	}
}
