package gateway

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/config"
	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
)

func TestAKeyThatIsTakenAwayCountsForTheNextMessageOfAnOpenStream(t *testing.T) {
	_, triton := model(t)
	yaml := func(key string) string {
		return fmt.Sprintf(`
version: 1
upstreams: {triton: {kind: triton, endpoints: "%s"}}
models: [{name: fraud}]
callers: [{name: bob, keys: ["sha256:%x"]}]
`, triton, sha256.Sum256([]byte(keyOf(key))))
	}
	r := gatewayOf(t, yaml("bob"), nil)
	reload := func(key string) {
		t.Helper()
		cfg, err := config.Parse("test.yaml", []byte(yaml(key)), func(name string) string {
			return map[string]string{"GATEWAY_DATA": "127.0.0.1:0", "GATEWAY_ADMIN": "127.0.0.1:0", "GATEWAY_DRAIN_BEFORE": "0s"}[name]
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.gateway.Reload(cfg); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := r.predict().PredictStream(as(t, "bob"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"OK", "ERROR: AUTH_INVALID: the key is not one of any caller", "OK"} {
		reload([]string{"bob", "somebody's", "bob"}[i])
		if err := stream.Send(&inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: fraudRow()}); err != nil {
			t.Fatal(err)
		}
		if a, err := stream.Recv(); err != nil || !strings.HasPrefix(a.Status, want) {
			t.Errorf("message %d: %v %v, want %s", i, a, err, want)
		}
	}
}
