package httpfront

import (
	"net/http"
	"time"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// whereToLook ends the answer to paths that lead nowhere.
const whereToLook = "POST /v1/predict, POST /v2/models/{model}/infer, GET /v2/models/{model}, GET /v2, GET /readyz; a slash inside a model's name is written %2F"

// table lists everything that is served here.
func (f *Front) table() *router {
	routes := []*route{
		{pattern: "/v1/predict", methods: []method{post((*exchange).predict)}},

		{pattern: "/v2", methods: []method{get(serverMetadata)}},
		{pattern: "/v2/health/live", methods: []method{get(probe(f.Live, http.StatusBadRequest, ""))}},
		{pattern: "/v2/health/ready", methods: []method{get(probe(f.Ready, http.StatusBadRequest, ""))}},
		{pattern: "/v2/models/stats", methods: []method{get(modelStatistics)}},
		{pattern: "/v2/repository/index", methods: []method{post(repositoryIndex)}},
		{pattern: "/v2/repository/{repository}/index", methods: []method{post(repositoryIndex)}},
		{pattern: "/v2/repository/models/{model}/load", methods: []method{post(modelLoad)}},
		{pattern: "/v2/repository/models/{model}/unload", methods: []method{post(modelUnload)}},
		{pattern: "/v2/repository/{repository}/models/{model}/load", methods: []method{post(modelLoad)}},
		{pattern: "/v2/repository/{repository}/models/{model}/unload", methods: []method{post(modelUnload)}},
		{pattern: "/v2/trace/setting", methods: []method{get(traceRead), post(traceWrite)}},
		{pattern: "/v2/models/{model}/trace/setting", methods: []method{get(traceRead), post(traceWrite)}},
		{pattern: "/v2/logging", methods: []method{get(logRead), post(logWrite)}},

		{pattern: "/livez", methods: []method{get(probe(f.Live, http.StatusServiceUnavailable, "live"))}},
		{pattern: "/readyz", methods: []method{get(probe(f.Ready, http.StatusServiceUnavailable, "ready"))}},
		{pattern: "/api/status", methods: []method{get(probe(f.Ready, http.StatusServiceUnavailable, "ready"))}},
		{pattern: "/api/health/live", methods: []method{get(probe(f.Live, http.StatusServiceUnavailable, "live"))}},
		{pattern: "/api/health/ready", methods: []method{get(probe(f.Ready, http.StatusServiceUnavailable, "ready"))}},
	}
	for _, model := range []string{"/v2/models/{model}", "/v2/models/{model}/versions/{version}"} {
		routes = append(
			routes,
			&route{pattern: model, methods: []method{get(modelMetadata)}},
			&route{pattern: model + "/ready", methods: []method{get(modelReady)}},
			&route{pattern: model + "/config", methods: []method{get(modelConfig)}},
			&route{pattern: model + "/stats", methods: []method{get(modelStatistics)}},
			&route{pattern: model + "/infer", methods: []method{post((*exchange).infer)}},
			&route{pattern: model + "/generate", methods: []method{post(generate)}},
			&route{pattern: model + "/generate_stream", methods: []method{post(generate)}},
		)
	}
	for _, s := range []sharedMemory{systemMemory, cudaMemory} {
		routes = append(
			routes,
			&route{pattern: s.path + "/status", methods: []method{get(s.status)}},
			&route{pattern: s.path + "/region/{region}/status", methods: []method{get(s.status)}},
			&route{pattern: s.path + "/region/{region}/register", methods: []method{post(s.register)}},
			&route{pattern: s.path + "/unregister", methods: []method{post(s.unregister)}},
			&route{pattern: s.path + "/region/{region}/unregister", methods: []method{post(s.unregister)}},
		)
	}
	if f.Metrics != nil {
		routes = append(routes, &route{pattern: "/metrics", methods: []method{get(metrics)}})
	}
	return newRouter(routes)
}

func metrics(x *exchange) error {
	_ = x.control.SetWriteDeadline(time.Now().Add(x.front.AnswerTimeout))
	x.begun = true
	x.front.Metrics.ServeHTTP(x.w, x.r)
	return nil
}

// kindOf says what a control method wants, the unit in which it is opened and granted.
func kindOf(method string) inference.Kind {
	switch method {
	case "RepositoryModelLoad", "RepositoryModelUnload":
		return inference.Repository
	case "TraceSetting":
		return inference.Trace
	case "LogSettings":
		return inference.Log
	case "SystemSharedMemoryStatus", "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister",
		"CudaSharedMemoryStatus", "CudaSharedMemoryRegister", "CudaSharedMemoryUnregister":
		return inference.SharedMemory
	}
	return inference.Metadata
}
