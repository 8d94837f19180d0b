package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	inferencepb "github.com/model-gateway/model-gateway/proto/ml/inference"
)

// seedScript is what users of model gateways write first.
const seedScript = `local hash = ngx.crc32_short(ngx.var.arg_user_id)
if hash % 100 < 10 then
    return "model_v2"
else
    return "model_v1"
end
`

func saveScript(t testing.TB, dir, name, source string) {
	t.Helper()
	path := filepath.Join(dir, name+".lua")
	if err := os.WriteFile(path+".new", []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// targetOf asks which target answers a user.
func (r *rig) targetOf(t *testing.T, user string) string {
	t.Helper()
	var header metadata.MD
	_, err := r.predict().Predict(t.Context(), &inferencepb.PredictionRequest{
		ModelName: "fraud", InputTensor: fraudRow(), Metadata: map[string]string{"user_id": user},
	}, grpc.Header(&header))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(header.Get("x-gateway-target"), " ")
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not in time", what)
		}
	}
}

func TestAScriptOfTheModelsNameSplitsItsUsersAndFollowsItsFile(t *testing.T) {
	_, triton := model(t)
	dir := t.TempDir()
	saveScript(t, dir, "fraud", seedScript)
	r := gatewayOf(t, fmt.Sprintf("version: 1\npassthrough: true\nlua: {dir: %q}\nupstreams: {triton: {kind: triton, endpoints: %q}}\n", dir, triton), nil)

	second := ""
	for i := range 60 {
		user, want := fmt.Sprint("user-", i), "model_v1"
		if crc32.ChecksumIEEE([]byte(user))%100 < 10 {
			want, second = "model_v2", user
		}
		if got := r.targetOf(t, user); got != want {
			t.Fatalf("%s went to %q, the script says %s", user, got, want)
		}
	}
	if second == "" {
		t.Fatal("no user of these goes to version 2")
	}

	saveScript(t, dir, "fraud", `return "model_v2"`)
	eventually(t, "the new script", func() bool { return r.targetOf(t, "user-0") == "model_v2" })
	saveScript(t, dir, "fraud", `return "model_v1`) // a quote is missing
	eventually(t, "the refusal", func() bool {
		return strings.Contains(r.admin(t, http.MethodGet, "/scripts/fraud", ""), "fraud.lua:1")
	})
	if got := r.targetOf(t, "user-0"); got != "model_v2" {
		t.Errorf("a script with a mistake sent a user to %q; the last good one says model_v2", got)
	}
	if err := os.Remove(filepath.Join(dir, "fraud.lua")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the file is missed", func() bool {
		return strings.Contains(r.admin(t, http.MethodGet, "/scripts/fraud", ""), "fraud.lua: is gone, and what ran stays")
	})
	if got := r.targetOf(t, "user-0"); got != "model_v2" {
		t.Errorf("a file that is gone sent a user to %q; what ran says model_v2", got)
	}
	saveScript(t, dir, "fraud", "-- no script\n")
	// Without a script the highest version serves, as for every model that passes through.
	eventually(t, "the script is gone", func() bool {
		return strings.Contains(r.admin(t, http.MethodGet, "/scripts", ""), "[]")
	})
}

func TestAnOperatorPutsAScriptInThePlaceOfAFileAndGoesBack(t *testing.T) {
	_, triton := model(t)
	dir := t.TempDir()
	saveScript(t, dir, "canary", `return "model_v1"`)
	r := gatewayOf(t, fmt.Sprintf(`
version: 1
lua: {dir: %q}
upstreams: {triton: {kind: triton, endpoints: %q}}
models:
  - name: fraud
    targets: {model_v1: {version: 1}, model_v2: {version: 2}}
    stable: model_v1
    split: [{script: canary.lua}]
`, dir, triton), nil)
	if got := r.targetOf(t, "ann"); got != "model_v1" {
		t.Fatalf("went to %q", got)
	}
	if said := r.admin(t, http.MethodPut, "/scripts/canary", `return "model_v3"`); !strings.Contains(said, "model_v3") || !strings.Contains(said, "error") {
		t.Errorf("a target that there is not was taken: %s", said)
	}
	if said := r.admin(t, http.MethodPut, "/scripts/canary", `return "model_v2"`); !strings.Contains(said, `"this replica"`) {
		t.Errorf("without Redis the change is of this replica, it said %s", said)
	}
	if got := r.targetOf(t, "ann"); got != "model_v2" {
		t.Errorf("what the operator put in place sent ann to %q", got)
	}
	r.admin(t, http.MethodPost, "/scripts/canary/rollback", `{"to": "file"}`)
	if got := r.targetOf(t, "ann"); got != "model_v1" {
		t.Errorf("back at the file's version, ann went to %q", got)
	}
}

// admin asks the operators' port and gives what it says.
func (r *rig) admin(t *testing.T, method, path, body string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.ops+path, bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	said, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(said)
}

func TestAThousandReloadsOfAScriptHalfOfThemBrokenFailNoCall(t *testing.T) {
	_, triton := model(t)
	dir := t.TempDir()
	saveScript(t, dir, "canary", `return "model_v1"`)
	r := gatewayOf(t, fmt.Sprintf(`
version: 1
lua: {dir: %q}
upstreams: {triton: {kind: triton, endpoints: %q}}
models:
  - name: fraud
    targets: {model_v1: {version: 1}, model_v2: {version: 2}}
    stable: model_v1
    split: [{script: canary.lua}]
`, dir, triton), nil)

	reloads := 1000
	if testing.Short() {
		reloads = 100
	}
	stop, failed := make(chan struct{}), make(chan error, 4)
	var calls atomic.Int64
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				a, err := r.predict().Predict(t.Context(), &inferencepb.PredictionRequest{ModelName: "fraud", InputTensor: fraudRow()})
				if err == nil && a.Status != "OK" {
					err = errors.New(a.Status)
				}
				if err != nil {
					failed <- err
					return
				}
				calls.Add(1)
			}
		})
	}
	refused := 0
	for i := range reloads {
		source := fmt.Sprintf("return %q -- %d", []string{"model_v1", "model_v2"}[i/2%2], i)
		if i%2 == 1 {
			source = fmt.Sprintf("retrun -- %d", i)
		}
		saveScript(t, dir, "canary", source)
		if err := r.gateway.scripts.Reload(); err != nil {
			refused++
		}
	}
	close(stop)
	clients.Wait()
	select {
	case err := <-failed:
		t.Errorf("a call failed while scripts were reloaded: %v", err)
	default:
	}
	if calls.Load() == 0 || refused != reloads/2 {
		t.Errorf("%d calls, %d of %d reloads were refused", calls.Load(), refused, reloads)
	}
}
