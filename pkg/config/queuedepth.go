package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

const metricsForm = "http://{host}:8002/metrics"

// parseMetrics checks the URL of the metrics of an upstream's endpoints.
func parseMetrics(s string) (string, error) {
	form := func(what string) (string, error) {
		return "", errors.New(what + ", such as " + metricsForm)
	}
	u, err := url.Parse(strings.ReplaceAll(s, "{host}", "host"))
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || len(s) > 2048:
		return form("must be an http or https URL")
	case u.User != nil || u.Fragment != "":
		return form("must have neither a user nor a fragment")
	case u.Hostname() != "host" || !strings.Contains(s, "//{host}"):
		return form("must have {host} for the host, which stands for that of each endpoint")
	}
	return s, nil
}

// queueDepth refuses pick: queue_depth where it is not known how deep queues are. Models must have been compiled.
func (c *compiler) queueDepth(files []ModelFile) {
	for _, u := range c.cfg.Upstreams {
		if u.Metrics != "" || c.mistaken(join(join("upstreams", u.Name), "metrics")) {
			continue
		}
		need := fmt.Sprintf("is queue_depth, and upstream %s has no metrics to tell it; give it metrics: %s", clip(u.Name), metricsForm)
		if c.cfg.Pick == inference.QueueDepth {
			c.wrong("defaults.pick", "%s", need)
			continue
		}
		for i, f := range files {
			path := fmt.Sprintf("models[%d].pick", i)
			goes := func(m Model) bool { return m.Name == f.Name && m.Pick == inference.QueueDepth && m.goesTo(u.Name) }
			if c.has(path) && slices.ContainsFunc(c.cfg.Models, goes) {
				c.wrong(path, "%s", need)
			}
		}
	}
}

// goesTo reports whether calls of m may go to an upstream.
func (m Model) goesTo(upstream string) bool {
	for _, t := range m.Targets {
		if t.Upstream == upstream {
			return true
		}
	}
	return len(m.Targets) == 0 && m.Upstream == upstream
}
