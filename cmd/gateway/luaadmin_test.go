package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/model-gateway/model-gateway/pkg/admin"
	"github.com/model-gateway/model-gateway/pkg/inference"
	"github.com/model-gateway/model-gateway/pkg/scripts"
)

const canary = `local hash = ngx.crc32_short(ngx.var.arg_user_id)
if hash % 100 < 10 then
    return "model_v2"
else
    return "model_v1"
end
`

// scripted serves the admin port of a gateway that has the scripts fraud, with cases and recorded calls, and text, whose
// newest version is broken.
func scripted(e *testscript.Env) (string, error) {
	dir := filepath.Join(e.WorkDir, "served")
	write := func(name, text string) error { return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600) }
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	for name, text := range map[string]string{
		"fraud.lua": canary, "fraud_cases.yaml": "cases:\n  - {name: nobody, call: {}, want: {outcome: no_key}}\n", "text.lua": "return \"model_v1\"\n",
	} {
		if err := write(name, text); err != nil {
			return "", err
		}
	}
	store := scripts.New(scripts.Options{Dir: dir, Uses: func(name string) scripts.Use {
		switch name {
		case "fresh":
			return scripts.Use{Open: true}
		case "idle":
			return scripts.Use{}
		}
		return scripts.Use{Models: []string{name}, Targets: []string{"model_v1", "model_v2"}}
	}})
	if err := write("text.lua", "return \"model_v1\"\nretrun"); err != nil {
		return "", err
	}
	if err := store.Reload(); err == nil {
		return "", os.ErrInvalid
	}
	at := time.Date(2026, 11, 30, 20, 0, 0, 0, time.UTC)
	for i := range 20 { // each in a second of its own, in which one call at least is recorded
		c := &inference.Call{Start: at.Add(time.Duration(i) * time.Second), Head: inference.Head{Model: "fraud", Rows: 1}}
		c.User = "ann"
		store.Decide(context.Background(), "fraud", "fraud", c)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := admin.Server(admin.Options{
		Gateway: explained{}, Metrics: http.NotFoundHandler(), Loopback: true, Callers: explained{}, Access: explained{}, Scripts: scripts.Port{Store: store},
	})
	go func() { _ = server.Serve(l) }()
	e.Defer(func() { _ = server.Close() })
	return l.Addr().String(), nil
}

// Each script in testdata/lua asks the admin port of a gateway with scripts at $ADMIN; at $NOBODY there is none, and
// $STRICT takes credentials.
func TestLuaScriptsOfAGateway(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/lua", UpdateScripts: *update, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			at, err := scripted(e)
			if err != nil {
				return err
			}
			strict, err := listen(e, false)
			if err != nil {
				return err
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			e.Setenv("ADMIN", at)
			e.Setenv("STRICT", strict)
			e.Setenv("NOBODY", l.Addr().String())
			return l.Close()
		},
	})
}
