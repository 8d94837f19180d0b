package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// defaultDynamic is what timeouts follow without a word in the file.
var defaultDynamic = inference.Dynamic{Floor: 2 * time.Second, Factor: 1.5}

// Bounds of a dynamic timeout.
const (
	minDynamicFloor  = 10 * time.Millisecond
	maxDynamicFloor  = time.Hour
	minDynamicFactor = 1
	maxDynamicFactor = 100
	maxURL           = 2048
)

// dynamic compiles a section `timeout.dynamic` of calls that may take most; what it leaves out is as in def.
func (c *compiler) dynamic(path string, f *DynamicFile, def inference.Dynamic, most time.Duration) inference.Dynamic {
	if f == nil || c.mistaken(path) {
		return def
	}
	if f.Mode == inference.Off.String() && !c.mistaken(path+".mode") {
		for _, field := range []string{".floor", ".factor"} {
			if c.has(path + field) {
				c.check(path+field, errors.New("says how long, but mode is off; remove it, or the mode"))
			}
		}
		return inference.Dynamic{}
	}
	if def.Factor == 0 { // off by default, and on here
		def = defaultDynamic
	}
	d := inference.Dynamic{
		Floor: setting(c, path+".floor", f.Floor, "", def.Floor, between(minDynamicFloor, maxDynamicFloor)), Factor: def.Factor,
		Shadow: def.Shadow,
	}
	if c.has(path+".mode") && !c.mistaken(path+".mode") {
		d.Shadow = f.Mode == inference.Shadow.String()
	}
	if c.has(path+".factor") && !c.mistaken(path+".factor") {
		if d.Factor = f.Factor; !(d.Factor >= minDynamicFactor && d.Factor <= maxDynamicFactor) {
			c.wrong(path+".factor", "must be %d to %d: below 1 it would end calls that are as quick as ever", minDynamicFactor, maxDynamicFactor)
			d.Factor = def.Factor
		}
	}
	// A floor that comes from elsewhere gives way to max: then max is what holds.
	if c.has(path+".floor") && !c.mistaken(path+".floor") && d.Floor > most {
		c.wrong(path+".floor", "is %s, longer than a call may take at all (timeout.max, %s); lower it, or raise max", shortly(d.Floor), shortly(most))
	}
	return d
}

// prometheus compiles the section `prometheus`.
func (c *compiler) prometheus(f *PrometheusFile) {
	const at = "prometheus.url"
	if f == nil || c.mistaken("prometheus") {
		return
	}
	if !c.has(at) {
		c.check(at, errors.New("must be given, such as http://prometheus:9090; or remove prometheus"))
		return
	}
	text, err := parsePrometheus(f.URL)
	c.check(at, err)
	c.cfg.Prometheus = text
}

func parsePrometheus(text string) (string, error) {
	const form = "such as http://prometheus:9090"
	u, err := url.Parse(text)
	switch {
	case err != nil || len(text) > maxURL || strings.ContainsFunc(text, notPrintable):
		return "", fmt.Errorf("is no URL; write one %s", form)
	case u.Scheme == "" || u.Opaque != "" || u.Scheme != "http" && u.Scheme != "https":
		return "", fmt.Errorf("must begin with http:// or https://, %s", form)
	case u.User != nil:
		return "", errors.New("has a user in it, which would show in logs and is not sent; remove it, and let Prometheus be reached without a password from here")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return "", errors.New("has something behind the path; end it before the ? or #")
	case strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/api/v1") || strings.HasSuffix(u.Path, "/api/v1/query"):
		return "", errors.New("ends in the path of the API, which is added here; leave it out, " + form)
	}
	host, port := u.Host, "9090"
	if p := u.Port(); p != "" || strings.HasSuffix(u.Host, ":") {
		host, port = u.Hostname(), p
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
	}
	if err := checkHostPort(host+":"+port, false); err != nil {
		return "", fmt.Errorf("has no host that can be: %w", err)
	}
	return strings.TrimRight(text, "/"), nil
}
