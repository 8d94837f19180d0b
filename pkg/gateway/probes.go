package gateway

import "github.com/model-gateway/model-gateway/pkg/config"

// inferProbes says which models of an upstream, by their names there, are probed by inferences.
func inferProbes(upstream string, cfg *config.Config) func(model string) bool {
	declared := make(map[string]bool)
	for i := range cfg.Models {
		m := &cfg.Models[i]
		if len(m.Targets) == 0 && m.Upstream == upstream {
			declared[m.UpstreamModel] = declared[m.UpstreamModel] || m.ProbeInfer
		}
		for _, t := range m.Targets {
			if t.Upstream == upstream {
				declared[t.Model] = declared[t.Model] || m.ProbeInfer
			}
		}
	}
	others := cfg.Passthrough && cfg.ProbeInfer
	return func(model string) bool {
		if infer, ok := declared[model]; ok {
			return infer
		}
		return others
	}
}
