package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/model-gateway/model-gateway/pkg/explain"
	tritonpb "github.com/model-gateway/model-gateway/proto/triton"
)

// keyOf is the key of a caller.
func keyOf(caller string) string { return caller + "-0123456789abcdef0123456789abcdef" }

// as is a context of calls by a caller; "" sends no credential.
func as(t *testing.T, caller string) context.Context {
	t.Helper()
	if caller == "" {
		return t.Context()
	}
	return metadata.AppendToOutgoingContext(t.Context(), "x-api-key", keyOf(caller))
}

// ruled is a gateway where bob may infer and see fraud and cn*, sre everything, load and unload included.
func ruled(t *testing.T, hide bool, triton string) *rig {
	t.Helper()
	hash := func(caller string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(keyOf(caller)))) }
	return gatewayOf(t, fmt.Sprintf(`
version: 1
auth: required
passthrough: true
control: [repository]
upstreams: {triton: {kind: triton, endpoints: "%s"}}
callers:
  - {name: bob, keys: ["%s"]}
  - {name: sre, keys: ["%s"], may_name_users: true}
access:
  hide_forbidden: %v
  rules:
    - {callers: [bob], models: [fraud, "cn*"], allow: [infer, metadata]}
    - {callers: [sre], models: ["*"], allow: [infer, metadata, repository]}
    - {callers: [sre], allow: [admin]}
`, triton, hash("bob"), hash("sre"), hide), map[string]string{"GATEWAY_ADMIN": "0.0.0.0:0"})
}

func TestACallerCallsAndSeesOnlyWhatTheRulesGrant(t *testing.T) {
	_, triton := model(t)
	for _, hide := range []bool{false, true} {
		r := ruled(t, hide, triton)
		refused := map[bool]codes.Code{false: codes.PermissionDenied, true: codes.NotFound}[hide]
		if _, err := r.kserve().ModelInfer(as(t, "bob"), fraudRequest()); err != nil {
			t.Errorf("bob on fraud: %v", err)
		}
		if _, err := r.kserve().ModelInfer(as(t, "bob"), echo([]byte{1}, 0)); status.Code(err) != refused {
			t.Errorf("bob on echo: %v", err)
		}
		if _, err := r.kserve().ModelInfer(as(t, "sre"), echo([]byte{1}, 0)); err != nil {
			t.Errorf("sre on echo: %v", err)
		}
		if _, err := r.kserve().ModelMetadata(as(t, "bob"), &tritonpb.ModelMetadataRequest{Name: "echo"}); status.Code(err) != refused {
			t.Errorf("bob on echo's metadata: %v", err)
		}
		switch ready, err := r.kserve().ModelReady(as(t, "bob"), &tritonpb.ModelReadyRequest{Name: "echo"}); {
		case hide && (err != nil || ready.Ready), !hide && status.Code(err) != codes.PermissionDenied:
			t.Errorf("echo's readiness to bob: %v %v", ready, err)
		}
		index, err := r.kserve().RepositoryIndex(as(t, "bob"), &tritonpb.RepositoryIndexRequest{})
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, m := range index.Models {
			names[m.Name] = true
		}
		if len(names) != 2 || !names["fraud"] || !names["cnn"] {
			t.Errorf("bob's index lists %v", names)
		}
	}
}

func TestWithoutACredentialNothingIsAnsweredButHealth(t *testing.T) {
	_, triton := model(t)
	r := ruled(t, true, triton)
	if _, err := r.kserve().ModelInfer(as(t, ""), fraudRequest()); status.Code(err) != codes.Unauthenticated {
		t.Errorf("fraud: %v", err)
	}
	if _, err := r.kserve().RepositoryIndex(as(t, ""), &tritonpb.RepositoryIndexRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the index: %v", err)
	}
	if h, err := healthpb.NewHealthClient(r.conn).Check(as(t, ""), &healthpb.HealthCheckRequest{}); err != nil || h.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v %v", h, err)
	}
}

func TestControlTakesTheKindAndTheConfigurationsConsent(t *testing.T) { // O-18
	_, triton := model(t)
	for _, hide := range []bool{false, true} {
		r := ruled(t, hide, triton)
		unload := &tritonpb.RepositoryModelUnloadRequest{ModelName: "text"}
		if _, err := r.kserve().RepositoryModelUnload(as(t, "bob"), unload); status.Code(err) != codes.PermissionDenied {
			t.Errorf("bob unloads: %v", err)
		}
		for _, who := range []string{"bob", "sre"} { // no rule grants it, nor does control open it
			if _, err := r.kserve().SystemSharedMemoryStatus(as(t, who), &tritonpb.SystemSharedMemoryStatusRequest{}); status.Code(err) != codes.PermissionDenied {
				t.Errorf("%s on shared memory: %v", who, err)
			}
			if _, err := r.kserve().LogSettings(as(t, who), &tritonpb.LogSettingsRequest{}); status.Code(err) != codes.PermissionDenied {
				t.Errorf("%s on log settings: %v", who, err)
			}
		}
		if _, err := r.kserve().RepositoryModelUnload(as(t, "sre"), unload); err != nil {
			t.Errorf("sre unloads: %v", err)
		}
		if _, err := r.kserve().RepositoryModelLoad(as(t, "sre"), &tritonpb.RepositoryModelLoadRequest{ModelName: "text"}); err != nil {
			t.Errorf("sre loads: %v", err)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.address+"/v2/repository/models/text/unload", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("x-api-key", keyOf("bob"))
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusForbidden {
			t.Errorf("bob unloads over HTTP: %d", answer.StatusCode)
		}
	}
}

func TestAHiddenModelAndAnUnknownOneGetTheSameStatusOnTheWire(t *testing.T) { // O-17
	server, triton := model(t)
	r := ruled(t, true, triton)
	refusal := func(name string) string {
		q := echo([]byte{1}, 0)
		q.ModelName = name
		_, err := r.kserve().ModelInfer(as(t, "bob"), q)
		b, marshalErr := proto.MarshalOptions{Deterministic: true}.Marshal(status.Convert(err).Proto())
		if err == nil || marshalErr != nil {
			t.Fatalf("%s: %v %v", name, err, marshalErr)
		}
		return strings.ReplaceAll(string(b), name, "NAME")
	}
	if a, b := refusal("echo"), refusal("ecko"); a != b {
		t.Errorf("hidden %q\nunknown %q", a, b)
	}
	before := server.Seen("echo").Calls
	for i := range 200 {
		refusal(fmt.Sprintf("n%03d", i))
	}
	if n := server.Seen("echo").Calls; n != before {
		t.Errorf("%d calls reached the upstream", n-before)
	}
	w := httptest.NewRecorder()
	r.gateway.admin.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	for _, name := range []string{"n001", "ecko"} {
		if strings.Contains(w.Body.String(), name) {
			t.Errorf("a name that was made up is a label: %s", name)
		}
	}
}

func TestEachMessageOfAStreamIsAuthorized(t *testing.T) {
	_, triton := model(t)
	for _, hide := range []bool{false, true} {
		r := ruled(t, hide, triton)
		s, err := r.kserve().ModelStreamInfer(as(t, "bob"))
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"fraud", "echo", "fraud"} {
			q := fraudRequest()
			q.ModelName, q.Id = name, fmt.Sprint(i)
			if err := s.Send(q); err != nil {
				t.Fatal(err)
			}
		}
		_ = s.CloseSend()
		want := map[bool]string{false: "may not infer", true: "is not known here"}[hide]
		for i := range 3 {
			a, err := s.Recv()
			if err != nil || (a.ErrorMessage != "") != (i == 1) || (i == 1 && !strings.Contains(a.ErrorMessage, want)) {
				t.Errorf("answer %d: %v %v", i, a, err)
			}
		}
	}
}

func TestTheAdminPortBeyondLoopbackTakesAnOperatorAndShowsNoSecret(t *testing.T) {
	_, triton := model(t)
	r := ruled(t, true, triton)
	get := func(path, caller string) *httptest.ResponseRecorder {
		q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		if caller != "" {
			q.SetBasicAuth("me", keyOf(caller))
		}
		w := httptest.NewRecorder()
		r.gateway.admin.Handler.ServeHTTP(w, q)
		return w
	}
	for caller, want := range map[string]int{"": 401, "stranger": 401, "bob": 403, "sre": 200} {
		if w := get("/config", caller); w.Code != want {
			t.Errorf("%q on /config: %d %s", caller, w.Code, w.Body)
		}
		if w := get("/livez", caller); w.Code != 200 {
			t.Errorf("%q on /livez: %d", caller, w.Code)
		}
	}
	if w := get("/config", "sre"); strings.Contains(w.Body.String(), fmt.Sprintf("%x", sha256.Sum256([]byte(keyOf("bob"))))) || !strings.Contains(w.Body.String(), "hide_forbidden") {
		t.Errorf("/config: %s", w.Body)
	}
	for _, c := range []struct{ caller, model, verdict, stage string }{
		{"bob", "fraud", explain.Allowed, ""},
		{"bob", "echo", explain.Refused, "authorize"},
		{"sre", "nobody", explain.Allowed, "resolve"},
		{"", "fraud", explain.Open, ""},
	} {
		w := get("/explain?user=ann&model="+c.model+"&caller="+c.caller, "sre")
		var report explain.Report
		if err := json.Unmarshal(w.Body.Bytes(), &report); err != nil || w.Code != 200 {
			t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
		stage := ""
		if report.Refusal != nil {
			stage = report.Refusal.Stage
		}
		if report.Access.Verdict != c.verdict || stage != c.stage || report.Served != (c.stage == "") {
			t.Errorf("%q on %s: %+v", c.caller, c.model, report)
		}
	}
}
