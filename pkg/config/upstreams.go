package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxEndpoints = 1000 // of one upstream
	maxName      = 64   // bytes of the name of an upstream or target, which become labels and metadata
	maxModelName = 256  // bytes
)

func (c *compiler) upstreams(file map[string]UpstreamFile) {
	for _, name := range c.order["upstreams"] {
		path := join("upstreams", name)
		if err := checkName(name); err != nil {
			c.bad(c.at(path).key, path, "%s", err)
		}
		f := file[name]
		u := Upstream{Name: name, Kind: cmp.Or(f.Kind, Triton), Traceparent: cmp.Or(f.Traceparent, TraceSampled)}
		c.endpoints(path+".endpoints", f.Endpoints, &u)
		var before *ClientTLS
		if c.before != nil {
			old, _ := c.before.Upstream(name)
			before = old.TLS
		}
		u.TLS = c.clientTLS(path+".tls", f.TLS, before)
		u.Headers = c.headers(path+".headers", f.Headers)
		u.Keepalive = c.keepalive(path+".keepalive", f.Keepalive)
		u.Metrics = setting(c, path+".metrics", f.Metrics, "", "", parseMetrics)
		u.Eject = c.eject(path+".eject", f.Eject)
		u.MaxInFlight = c.count(path+".max_in_flight", f.MaxInFlight, 0, maxConcurrency)
		c.cfg.Upstreams = append(c.cfg.Upstreams, u)
	}
	c.upstreamsFromEnv()
}

// endpoints compiles the field `endpoints`.
func (c *compiler) endpoints(path string, list OneOrMany, u *Upstream) {
	if c.mistaken(path) {
		return
	}
	if len(list) == 0 {
		c.wrong(path, "must be given: host:port, a list of them, dns:///host:port or "+kubernetesForm)
		return
	}
	if len(list) == 1 && strings.Contains(list[0], "://") {
		if err := u.find(list[0]); err != nil {
			c.wrong(path, "%s", err)
		}
		return
	}
	if len(list) > maxEndpoints {
		c.wrong(path, "has %d entries; at most %d", len(list), maxEndpoints)
		return
	}
	for i, e := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		if !c.has(at) {
			at = path // one text in place of a list
		}
		switch err := checkEndpoint(e); {
		case c.mistaken(at):
		case err != nil:
			c.wrong(at, "%s", err)
		case slices.Contains(u.Endpoints, e):
			c.wrong(at, "%s is in the list already", clip(e))
		}
		u.Endpoints = append(u.Endpoints, e)
	}
}

func checkEndpoint(e string) error {
	switch {
	case strings.Contains(e, "://"):
		return errors.New("must be host:port: dns:///host:port and k8s:///namespace/service:port stand by themselves, outside any list")
	case strings.ContainsAny(e, ", "):
		return errors.New("must be one host:port; write several as a list, [a:8001, b:8001]")
	}
	return checkHostPort(e, false)
}

// dnsPort is where name servers listen.
const dnsPort = "53"

// parseDNS gives the host:port of dns:///host:port, and the server of dns://server/host:port, with its port.
func parseDNS(target string) (server, addr string, err error) {
	scheme, rest, _ := strings.Cut(target, "://")
	if scheme != "dns" {
		return "", "", fmt.Errorf("%s:// is not served by this version; use host:port, a list of them, dns:///host:port or %s", clip(scheme), kubernetesForm)
	}
	server, addr, ok := strings.Cut(rest, "/")
	if !ok {
		return "", "", errors.New("must have three slashes, dns:///host:port, and the system's own resolver is asked; or name the server to ask, dns://server/host:port")
	}
	if server != "" {
		if i := strings.LastIndexByte(server, ':'); i < 0 || strings.HasSuffix(server, "]") {
			server += ":" + dnsPort
		}
		if err := checkHostPort(server, false); err != nil {
			return "", "", fmt.Errorf("names the DNS server wrongly, write dns://10.0.0.10/host:port or dns://10.0.0.10:53/host:port: %w", err)
		}
	}
	return server, addr, checkHostPort(addr, false)
}

// upstreamsFromEnv adds what the environment says where the file says nothing.
func (c *compiler) upstreamsFromEnv() {
	triton, many := strings.TrimSpace(c.env(envTriton)), strings.TrimSpace(c.env(envUpstreams))
	found := len(c.found)
	var all []Upstream
	switch {
	case triton != "" && many != "":
		c.badEnv(envUpstreams, fmt.Errorf("is set beside %s; set one of the two", envTriton))
	case triton != "":
		all = c.envUpstream(all, envTriton, Triton, triton)
	case many != "":
		for part := range strings.SplitSeq(strings.Trim(many, "; "), ";") {
			name, addrs, ok := strings.Cut(part, "=")
			if name = strings.TrimSpace(name); !ok {
				c.badEnv(envUpstreams, errors.New("must be name=host:port,host:port;name=dns:///host:port"))
				break
			}
			all = c.envUpstream(all, envUpstreams, name, addrs)
		}
	}
	switch {
	case !c.has("upstreams"):
		c.cfg.Upstreams = all
		if len(all) == 0 && found == len(c.found) && !c.mistaken("upstreams") {
			c.wrong("upstreams", "must name at least one upstream, or the environment must: TRITON_GRPC_HOST=host:port")
		}
	case len(c.cfg.Upstreams) == 0 && !c.mistaken("upstreams"):
		c.wrong("upstreams", "must name at least one upstream; or remove it and set TRITON_GRPC_HOST=host:port")
	case triton != "" || many != "":
		name := envTriton
		if triton == "" {
			name = envUpstreams
		}
		c.cfg.Notes = append(c.cfg.Notes, name+" is set, and not used: the file declares upstreams, which win")
	}
}

// envUpstream adds one upstream of the environment to all.
func (c *compiler) envUpstream(all []Upstream, env, name, addrs string) []Upstream {
	u := Upstream{Name: name, Kind: Triton, Traceparent: TraceSampled}
	addrs = strings.TrimSpace(addrs)
	if err := checkName(name); err != nil {
		c.badEnv(env, err)
	}
	if slices.ContainsFunc(all, func(o Upstream) bool { return o.Name == name }) {
		c.badEnv(env, fmt.Errorf("names %s a second time", clip(name)))
	}
	if strings.Contains(addrs, "://") && !strings.Contains(addrs, ",") {
		if err := u.find(addrs); err != nil {
			c.badEnv(env, err)
		}
		return append(all, u)
	}
	for addr := range strings.SplitSeq(addrs, ",") {
		addr = strings.TrimSpace(addr)
		if err := checkEndpoint(addr); err != nil {
			c.badEnv(env, err)
			break
		}
		if !slices.Contains(u.Endpoints, addr) {
			u.Endpoints = append(u.Endpoints, addr)
		}
	}
	if len(u.Endpoints) > maxEndpoints {
		c.badEnv(env, fmt.Errorf("has %d addresses; at most %d", len(u.Endpoints), maxEndpoints))
	}
	return append(all, u)
}

// checkName is for names that become labels, metadata and words of scripts: those of upstreams and targets.
func checkName(name string) error {
	if name == "" || len(name) > maxName || strings.Trim(name, nameChars+".") != "" {
		return fmt.Errorf("the name %q must be 1 to %d letters, digits, dots, dashes or underscores", clip(name), maxName)
	}
	return nil
}

// checkModelName is for names that clients send or an upstream has. Braces would let the keys of two models meet in a
// shared store, control characters would break logs.
func checkModelName(name string) error {
	switch {
	case name == "":
		return errors.New("must not be empty")
	case len(name) > maxModelName:
		return fmt.Errorf("must be at most %d bytes, not %d", maxModelName, len(name))
	case !utf8.ValidString(name):
		return errors.New("must be UTF-8")
	case strings.ContainsAny(name, "{}"):
		return errors.New("must not have braces")
	case strings.ContainsFunc(name, isControl):
		return errors.New("must not have control characters")
	case strings.TrimSpace(name) != name:
		return errors.New("must not begin or end with a space")
	}
	return nil
}

func isControl(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }
