package config

import "github.com/model-gateway/model-gateway/pkg/inference"

// defaultRetry: once, elsewhere, for a fifth of calls at most.
var defaultRetry = inference.Retry{Attempts: 2, Budget: .2}

const maxAttempts = 5

// retry compiles a section `retry`; what it leaves out is as in def.
func (c *compiler) retry(path string, f *RetryFile, def inference.Retry) inference.Retry {
	if f == nil || c.mistaken(path) {
		return def
	}
	return inference.Retry{
		Attempts: c.count(path+".attempts", f.Attempts, def.Attempts, maxAttempts),
		Budget:   setting(c, path+".budget", f.Budget, "", def.Budget, Percent.parse),
	}
}
