package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/model-gateway/model-gateway/pkg/admin"
	"github.com/model-gateway/model-gateway/pkg/config"
	"github.com/model-gateway/model-gateway/pkg/tlsfiles/tlstest"
)

func TestACertificateThatIsReplacedIsInTheRecordOfChanges(t *testing.T) {
	_, triton := model(t)
	dir, ca := t.TempDir(), tlstest.NewAuthority(t, "ca")
	cert, key := ca.Issue(t, []string{"127.0.0.1"}).Write(t, dir)
	cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, `
version: 1
listen: {data: "127.0.0.1:0", admin: "off", tls: {cert: %s, key: %s}}
passthrough: true
upstreams: {triton: {endpoints: "%s"}}
`, cert, key, triton), func(name string) string {
		return map[string]string{"GATEWAY_DRAIN_BEFORE": "0s"}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	read, write := io.Pipe()
	log := slog.New(slog.NewJSONHandler(write, nil))
	g, err := New(cfg, Options{Log: slog.New(slog.DiscardHandler), Version: "test", Audit: admin.NewAudit(log, func() string { return dir })})
	if err != nil {
		t.Fatal(err)
	}
	ports, err := Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx, ports) }()
	defer func() {
		_ = read.Close() // so that no line holds up the end
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	ca.Issue(t, []string{"127.0.0.1", "gateway.example"}).Write(t, dir)
	lines := bufio.NewScanner(read)
	for lines.Scan() { // refused while only one of the two files is there, which may or may not be seen
		var e struct {
			What    string `json:"what"`
			Who     string `json:"who"`
			OldHash string `json:"old_hash"`
			NewHash string `json:"new_hash"`
			Result  string `json:"result"`
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e.Who != "file" || e.What != "files of listen.tls" || len(e.OldHash) != 64 || len(e.NewHash) != 64 {
			t.Fatalf("%s", lines.Text())
		}
		if e.Result == admin.Done && e.OldHash != e.NewHash {
			break
		}
	}
}
