package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/model-gateway/model-gateway/pkg/inference"
)

// hash is the hash of the key k, as files hold it.
func hash(k string) string { return HashKey(k).String() }

// oneCaller declares a caller, web, beside an upstream.
var oneCaller = oneUpstream + "callers: [{name: web, keys: [" + hash("web") + "]}]\n"

// certificate writes a certificate that signs itself, and its key, and gives their files.
func certificate(t *testing.T, ends time.Time) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "gateway"}, NotAfter: ends, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	must(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write(t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})))
	return cert, key
}

func tomorrow() time.Time { return time.Now().Add(24 * time.Hour) }

// fileWith writes a file of its own folder, and gives its path.
func fileWith(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, text)
	return path
}

func TestCallersCompileToWhatTheFileSays(t *testing.T) {
	cert, key := certificate(t, tomorrow())
	more := fileWith(t, "\uFEFF# batch's keys\r\n"+hash("b1")+" # old\r\n\r\n  "+hash("b2")+"\n"+hash("b1"))
	jwks := fileWith(t, `{"keys": [{"kty": "EC"}]}`)
	c := good(t, oneUpstream+`
trusted_proxies: [10.0.0.0/8, 192.0.2.7, "::ffff:192.0.2.8", 2001:db8::/32]
listen: {tls: {cert: `+cert+`, key: `+key+`, client_ca: `+cert+`}}
callers:
  - {name: web, keys: [`+hash("w1")+`, "`+hash("w2")+`"], may_name_users: true, priority: critical}
  - {name: batch, keys: [`+hash("b0")+`], keys_file: `+more+`, keys_env: BATCH_KEYS, priority: sheddable}
  - {name: svc, jwt: {issuer: https://id, jwks: https://id.example.com/jwks.json, audience: models, caller: azp, user: sub, roles: groups}}
  - {name: svc2, jwt: {issuer: https://id, jwks: https://id.example.com/jwks.json, audience: models, caller: azp}}
  - {name: local, jwt: {issuer: dev, jwks: "http://127.0.0.1:8000/keys", audience: models}}
  - {name: file, jwt: {issuer: file, jwks: `+jwks+`, audience: models}}
  - {name: mesh, mtls: {san: "spiffe://prod/ns/*/sa/*"}, priority: default}
`, "BATCH_KEYS="+hash("b3")+",  "+hash("b0")+"\n"+hash("b4"))
	want := []Caller{
		{Name: "web", Keys: []KeyHash{HashKey("w1"), HashKey("w2")}, MayNameUsers: true, Priority: inference.PriorityCritical},
		{Name: "batch", Keys: []KeyHash{HashKey("b0"), HashKey("b1"), HashKey("b2"), HashKey("b3"), HashKey("b4")}, Priority: inference.PrioritySheddable},
		{Name: "svc", JWT: &JWT{Issuer: "https://id", JWKS: "https://id.example.com/jwks.json", Audience: "models", CallerClaim: "azp", UserClaim: "sub", RolesClaim: "groups"}},
		{Name: "svc2", JWT: &JWT{Issuer: "https://id", JWKS: "https://id.example.com/jwks.json", Audience: "models", CallerClaim: "azp"}},
		{Name: "local", JWT: &JWT{Issuer: "dev", JWKS: "http://127.0.0.1:8000/keys", Audience: "models"}},
		{Name: "file", JWT: &JWT{Issuer: "file", JWKS: jwks, Audience: "models"}},
		{Name: "mesh", MTLS: &MTLS{SAN: "spiffe://prod/ns/*/sa/*"}},
	}
	if diff := cmp.Diff(want, c.Callers); diff != "" {
		t.Error(diff)
	}
	if c.Auth != AuthRequired || c.AuthStated {
		t.Errorf("auth is %v, stated %v", c.Auth, c.AuthStated)
	}
	if got := c.Callers[5].JWT.JWKSFile() + c.Callers[4].JWT.JWKSFile(); got != jwks {
		t.Errorf("the file of keys is %q", got)
	}
	if got := c.Listen.TLS; *got != (ListenTLS{cert, key, cert}) {
		t.Errorf("listen.tls is %+v", got)
	}
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.7/32"), netip.MustParsePrefix("192.0.2.8/32"), netip.MustParsePrefix("2001:db8::/32")}
	if !slices.Equal(c.Trusted, trusted) {
		t.Errorf("trusted are %v", c.Trusted)
	}
	if got := c.Files.Paths(); !slices.Equal(got, []string{more}) {
		t.Errorf("the files to watch are %q", got)
	}
}

func TestAuthFollowsFromCallersUnlessTheFileSays(t *testing.T) {
	for text, want := range map[string]struct {
		auth   Auth
		stated bool
	}{
		oneUpstream:                          {AuthNone, false},
		oneUpstream + "callers: []":          {AuthNone, false},
		oneUpstream + "auth: none":           {AuthNone, true},
		oneCaller:                            {AuthRequired, false},
		oneCaller + "auth: required":         {AuthRequired, true},
		oneCaller + "auth: none":             {AuthNone, true},
		oneCaller + "auth: null":             {AuthRequired, false},
		oneUpstream + "auth: none\ncallers:": {AuthNone, true},
	} {
		if c := good(t, text); c.Auth != want.auth || c.AuthStated != want.stated {
			t.Errorf("%q: %v, stated %v", text, c.Auth, c.AuthStated)
		}
	}
}

func TestOnlyAFileThatSaysSoOpensTheDoor(t *testing.T) {
	closed, open, stated := good(t, oneCaller), good(t, oneUpstream), good(t, oneCaller+"auth: none")
	for name, c := range map[string]struct {
		old, next *Config
		want      bool
	}{
		"callers gone":  {closed, open, true},
		"auth: none":    {closed, stated, false},
		"still closed":  {closed, closed, false},
		"always open":   {open, open, false},
		"closed by now": {open, closed, false},
	} {
		if AuthLoosened(c.old, c.next) != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}

func TestAccessRulesCompileToWhatTheFileSays(t *testing.T) {
	c := good(t, oneUpstream+`
control: [repository, trace]
callers: [{name: web, keys: [`+hash("w")+`]}, {name: sre, keys: [`+hash("s")+`]}]
access:
  hide_forbidden: true
  rules:
    - {callers: [web], models: [fraud, "rank-*"], allow: [infer, metadata, infer]}
    - {callers: ["*"], models: ["*"], allow: [metadata]}
    - {callers: [sre], models: ["*"], allow: [repository, admin]}
    - {callers: [sre], allow: [trace, log, shm]}
`)
	want := Access{HideForbidden: true, Stated: true, Rules: []AccessRule{
		{Callers: []string{"web"}, Models: []string{"fraud", "rank-*"}, Allow: []inference.Kind{inference.Infer, inference.Metadata}},
		{Callers: []string{"web", "sre"}, Models: []string{"*"}, Allow: []inference.Kind{inference.Metadata}},
		{Callers: []string{"sre"}, Models: []string{"*"}, Allow: []inference.Kind{inference.Repository, inference.Admin}},
		{Callers: []string{"sre"}, Allow: []inference.Kind{inference.Trace, inference.Log, inference.SharedMemory}},
	}}
	if diff := cmp.Diff(want, c.Access); diff != "" {
		t.Error(diff)
	}
}

func TestLimitsCompileToWhatTheFileSays(t *testing.T) {
	c := good(t, oneUpstream+`
redis: {address: redis:6379, when_down: closed}
callers: [{name: web, keys: [`+hash("w")+`]}, {name: sre, keys: [`+hash("s")+`]}]
limits:
  - {per: ip, rate: 500/min, overrides: {192.0.2.7: 2/s, "2001:db8:0::7": 3/s}}
  - {per: global, rate: 20000/s, mode: shadow, name: everyone, when_down: open}
  - {per: caller, rate: 1000/h, cost: KiB, burst: 64, overrides: {sre: 2000/h}}
models:
  - name: fraud
    tensors: {inputs: [{name: A, datatype: FP32, shape: [8, 1024]}]}
    limits:
      - {per: model, rate: 2000/s, burst: 4000, draw: exact}
      - {per: user, rate: 2/s, cost: rows, draw: lease, overrides: {vip-7: 20/s, slow: 1/min}}
      - {per: caller, rate: 0.5/s, cost: "1", mode: off, when_down: local}
      - {per: caller, rate: 5/s, cost: KiB}
  - name: images/cnn
    limits: [{per: user, rate: 1/min, cost: 1}]
`)
	rate := func(perSecond, burst float64) inference.Rate {
		return inference.Rate{PerSecond: perSecond, Burst: burst}
	}
	closed := inference.DownClosed
	top := []*inference.Limit{
		{Name: "per-ip", Per: inference.PerIP, Rate: rate(500.0/60, 9), Draw: inference.DrawLease, WhenDown: closed, Overrides: map[string]inference.Rate{"192.0.2.7": rate(2, 2), "2001:db8::/64": rate(3, 3)}},
		{Name: "everyone", Per: inference.PerGlobal, Rate: rate(20000, 20000), Mode: inference.Shadow, Draw: inference.DrawLease, WhenDown: inference.DownOpen},
		{Name: "per-caller-KiB", Per: inference.PerCaller, Rate: rate(1000.0/3600, 64), Cost: inference.CostKiB, Draw: inference.DrawLease, WhenDown: closed, Overrides: map[string]inference.Rate{"sre": rate(2000.0/3600, 128)}},
	}
	if diff := cmp.Diff(top, c.Limits); diff != "" {
		t.Error(diff)
	}
	fraud := []*inference.Limit{
		{Name: "fraud/per-model", Per: inference.PerModel, Rate: rate(2000, 4000), Draw: inference.DrawExact, WhenDown: closed},
		{Name: "fraud/per-user-rows", Per: inference.PerUser, Rate: rate(2, 8), Cost: inference.CostRows, Draw: inference.DrawLease, WhenDown: closed, Overrides: map[string]inference.Rate{"vip-7": rate(20, 20), "slow": rate(1.0/60, 8)}},
		{Name: "fraud/per-caller", Per: inference.PerModelCaller, Rate: rate(0.5, 1), Mode: inference.Off, WhenDown: inference.DownLocal},
		{Name: "fraud/per-caller-KiB", Per: inference.PerModelCaller, Rate: rate(5, 32), Cost: inference.CostKiB, WhenDown: closed},
	}
	if diff := cmp.Diff(fraud, c.Models[0].Limits); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]*inference.Limit{{Name: "images/cnn/per-user", Per: inference.PerUser, Rate: rate(1.0/60, 1), WhenDown: closed}}, c.Models[1].Limits); diff != "" {
		t.Error(diff)
	}
}

// The users' own rule, 500 requests a minute per address, is one line.
func TestARateIsACountForEachUnitOfTime(t *testing.T) {
	for text, want := range map[Rate]float64{"20/s": 20, "500/min": 500.0 / 60, "1000/h": 1000.0 / 3600, "0.5/s": 0.5, "1000000000/s": 1e9} {
		if got, err := text.parse(); got != want || err != nil {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	for _, text := range []Rate{"", "5", "/s", "0/s", "-1/s", "+1/s", "1e3/s", "Inf/s", "NaN/s", "0x10/s", "1_000/s", "1/m", "1/S", "1 /s", "1/s ", "1/s/s", "1.1.1/s", "./s", "1000000001/s"} {
		if got, err := text.parse(); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestRedisCompilesToWhatTheFileAndTheEnvironmentSay(t *testing.T) {
	password := fileWith(t, "hunter2\n")
	c := good(t, oneUpstream+"redis: {address: [a:26379, b:26379], mode: sentinel, master: mymaster, prefix: prod/models, user: gateway, password_file: "+password+", timeout: 50ms, when_down: open, tls: {}}\nreplicas: 3")
	want := &Redis{
		Addresses: []string{"a:26379", "b:26379"}, Mode: RedisSentinel, Master: "mymaster", Prefix: "prod/models", User: "gateway", Password: "hunter2",
		TLS: &ClientTLS{CA: CASystem}, Timeout: 50 * time.Millisecond, WhenDown: inference.DownOpen,
	}
	if diff := cmp.Diff(want, c.Redis); diff != "" || c.Replicas != 3 {
		t.Error(c.Replicas, diff)
	}
	plain := &Redis{Addresses: []string{"redis:6379"}, Mode: RedisStandalone, Prefix: defaultPrefix, Timeout: defaultRedisTimeout}
	for _, c := range []*Config{
		good(t, oneUpstream+"redis: {address: redis:6379}"),
		good(t, oneUpstream, "GATEWAY_REDIS_ADDRESS= redis:6379 "),
		good(t, oneUpstream+"redis: {address: elsewhere:6379}", "GATEWAY_REDIS_ADDRESS=redis:6379,redis:6379"),
	} {
		if diff := cmp.Diff(plain, c.Redis); diff != "" {
			t.Error(diff)
		}
	}
	for _, c := range []*Config{
		good(t, oneUpstream+"redis: {address: unix:///run/redis.sock}"),
		good(t, oneUpstream, "GATEWAY_REDIS_ADDRESS=unix:///run/redis.sock"),
	} {
		if !slices.Equal(c.Redis.Addresses, []string{"unix:///run/redis.sock"}) {
			t.Errorf("a socket is %q", c.Redis.Addresses)
		}
	}
	if c := good(t, oneUpstream); c.Redis != nil || c.Replicas != 1 {
		t.Errorf("without a word of it, Redis is %+v, replicas %d", c.Redis, c.Replicas)
	}
	if got := wrongs(t, oneUpstream, "GATEWAY_REDIS_ADDRESS=redis"); got[0] != "GATEWAY_REDIS_ADDRESS: must be host:port, such as redis:6379 (environment)" {
		t.Errorf("got %q", got)
	}
}

func TestUpstreamsHaveTLSAndHeadersOfTheirOwn(t *testing.T) {
	cert, key := certificate(t, tomorrow())
	token := fileWith(t, "\n  s3cr3t {token}\n")
	c := good(t, `
upstreams:
  triton:
    endpoints: triton:8001
    tls: {ca: `+cert+`, cert: `+cert+`, key: `+key+`, server_name: triton.prod}
    headers: {triton-grpc-protocol-infer: {from_file: `+token+`}, authorization: Bearer a:b, x-tenant: "7"}
`)
	u := c.Upstreams[0]
	if *u.TLS != (ClientTLS{cert, cert, key, "triton.prod"}) {
		t.Errorf("tls is %+v", u.TLS)
	}
	want := map[string]string{"triton-grpc-protocol-infer": "s3cr3t {token}", "authorization": "Bearer a:b", "x-tenant": "7"}
	if diff := cmp.Diff(want, u.Headers); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(c.Files.Paths(), []string{token}) {
		t.Errorf("the files to watch are %q", c.Files.Paths())
	}
}

func TestCertificatesThatDoNotFitAreMistakesAndOldOnesAreTold(t *testing.T) {
	cert, _ := certificate(t, tomorrow())
	old, key := certificate(t, time.Now().Add(-time.Hour))
	got := wrongs(t, oneUpstream+"listen: {tls: {cert: "+cert+", key: "+key+"}}")
	if len(got) != 1 || !strings.Contains(got[0], "are no certificate and its key: private key does not match public key") {
		t.Errorf("another's key: %q", got)
	}
	got = wrongs(t, oneUpstream+"listen: {tls: {cert: "+old+", key: "+key+", client_ca: "+key+"}}")
	if len(got) != 1 || !strings.Contains(got[0], "has no certificate in it") {
		t.Errorf("a key for authorities: %q", got)
	}
	c := good(t, oneUpstream+"listen: {tls: {cert: "+old+", key: "+key+"}}")
	if len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "clients will refuse it") {
		t.Errorf("notes are %q", c.Notes)
	}
}

func TestFilesAreFoundBesideTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "secrets"), 0o700))
	write(t, filepath.Join(dir, "secrets", "web"), hash("web"))
	state := filepath.Join(dir, "state")
	path := filepath.Join(dir, "gateway.yaml")
	write(t, path, oneUpstream+"state_dir: "+state+"\ncallers: [{name: web, keys_file: secrets/web}]")
	c, err := Load(path, nil)
	must(t, err)
	if want := []string{filepath.Join(dir, "secrets", "web")}; !slices.Equal(c.Files.Paths(), want) || c.Callers[0].Keys[0] != HashKey("web") {
		t.Errorf("files are %q", c.Files.Paths())
	}
	must(t, KeepLastGood(c))
	write(t, path, "state_dir: "+state+"\nversion: 9")
	if last, err := LoadLastGood(path, nil); err != nil || len(last.Callers) != 1 {
		t.Errorf("the last good configuration has lost its files: %v", err)
	}
}

func TestTheExampleOfAccessAndLimitsSaysWhatItsCommentsSay(t *testing.T) {
	c, err := Load("../../docs/examples/access-and-limits.yaml", nil)
	must(t, err)
	if len(c.Notes) > 0 {
		t.Errorf("the example surprises: %q", c.Notes)
	}
	if c.Auth != AuthRequired || len(c.Callers) != 3 || len(c.Callers[0].Keys) != 2 || len(c.Callers[1].Keys) != 2 || c.Callers[1].JWT.CallerClaim != "azp" {
		t.Errorf("callers are %+v", c.Callers)
	}
	if len(c.Access.Rules) != 5 || !c.Access.HideForbidden || len(c.Access.Rules[2].Callers) != 3 {
		t.Errorf("access is %+v", c.Access)
	}
	if c.Redis == nil || c.Replicas != 2 || len(c.Limits) != 3 || len(c.Models[0].Limits) != 3 || c.Models[0].Limits[2].WhenDown != inference.DownClosed {
		t.Errorf("Redis is %+v, limits are %+v", c.Redis, c.Limits)
	}
	if got := string(c.Masked()); strings.Contains(got, c.Callers[0].Keys[0].String()) || !strings.Contains(got, "keys_file: keys/batch.keys") {
		t.Errorf("masked, it is\n%s", got)
	}
	// What stands in comments is good too, once the files are there.
	cert, key := certificate(t, tomorrow())
	text := string(c.Source)
	for from, to := range map[string]string{
		"# listen:": "listen:", "#   tls:": "  tls:", "  # -": "  -", "# user:": "user:", "# password_file:": "password_file:", "# tls:": "tls:", "# headers:": "headers:", "# auth: required": "auth: required",
		"/tls/tls.crt": cert, "/tls/tls.key": key, "/tls/ca.crt": cert, "/tls/triton-ca.crt": cert, "/tls/gateway.crt": cert, "/tls/gateway.key": key,
		"/secrets/redis": fileWith(t, "hunter2"), "/secrets/triton": fileWith(t, "token"),
	} {
		if !strings.Contains(text, from) {
			t.Errorf("the example has no %s", from)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	c, err = Parse(c.Path, []byte(text), nil)
	must(t, err)
	if c.Listen.TLS == nil || c.Redis.TLS == nil || c.Redis.Password != "hunter2" || c.Upstreams[0].TLS == nil || len(c.Upstreams[0].Headers) != 1 || c.Callers[3].MTLS == nil {
		t.Errorf("the comments say %+v", c)
	}
}

func TestNotesTellWhatWouldSurprise(t *testing.T) {
	tensors := "tensors: {inputs: [{name: A, datatype: FP32, shape: [-1, 16]}]}"
	rows := "limits: [{per: user, rate: 1/s, cost: rows}]"
	for text, want := range map[string]string{
		oneUpstream + "models: [{name: m, " + rows + "}]":                                                           "models[0].limits[0] counts rows",
		oneUpstream + "models: [{name: m, " + rows + ", " + tensors + "}]":                                          "",
		oneUpstream + "models: [{name: m, " + strings.Replace(rows, "rate", "mode: off, rate", 1) + "}]":            "",
		oneUpstream + "limits: [{per: global, rate: 1/s, cost: rows}]":                                              "limits[0] counts rows",
		oneUpstream + "limits: [{per: global, rate: 1/s, cost: rows}]\nmodels: [{name: m, " + tensors + "}]":        "",
		oneUpstream + "trusted_proxies: [0.0.0.0/0]":                                                                "trusted_proxies[0] is every address",
		oneCaller + "control: [log]":                                                                                "control opens log, and no access rule",
		oneCaller + "access: {rules: [{callers: [web], allow: [shm]}]}":                                             "allows shm, and control does not open it",
		oneCaller + "control: [shm]\naccess: {rules: [{callers: [web], allow: [shm]}]}":                             "",
		oneUpstream + "control: [log]":                                                                              "",
		oneUpstream + "listen: {admin: :8081}":                                                                      "only health and metrics answer there",
		oneUpstream + "listen: {admin: localhost:8081}":                                                             "",
		oneCaller + "listen: {admin: :8081}\naccess: {rules: [{callers: [web], allow: [admin]}]}":                   "",
		oneCaller + "models: [{name: fraud}]\naccess: {rules: [{callers: [web], models: [fruad], allow: [infer]}]}": "fruad matches no model (did you mean fraud?)",
		oneCaller + "access: {rules: [{callers: [web], models: [fruad], allow: [infer]}]}":                          "",
	} {
		c := good(t, text)
		if got := strings.Join(c.Notes, "\n"); (want == "") != (got == "") || !strings.Contains(got, want) || len(c.Notes) > 1 {
			t.Errorf("%s\nnotes %q, not %q", text, got, want)
		}
	}
}

func TestAnAdminPortInATrustedNetworkMayHaveKeys(t *testing.T) {
	c := good(t, oneCaller+"auth: none\naccess: {rules: [{callers: [web], allow: [admin]}]}")
	if c.Auth != AuthNone || len(c.Access.Rules) != 1 {
		t.Errorf("got %+v", c.Access)
	}
}

func TestPatternsOfModelsMatchWholeNames(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"fraud", "fraud", true},
		{"fraud", "fraud2", false},
		{"fraud", "a-fraud", false},
		{"*", "", true},
		{"*", "team/bert", true},
		{"rank-*", "rank-", true},
		{"rank-*", "rank-a/b", true},
		{"team/*", "team/bert/large", true},
		{"team/*", "teambert", false},
		{"*/bert", "team/bert", true},
		{"?", "/", true},
		{"?", "é", true},
		{"[ab]x", "bx", true},
		{"[^ab]x", "bx", false},
		{`\*`, "*", true},
		{`\*`, "a", false},
		{"Fraud", "fraud", false},
		{"[", "[", false},
	} {
		if MatchModel(c.pattern, c.name) != c.want {
			t.Errorf("%q and %q: %v", c.pattern, c.name, !c.want)
		}
	}
}

func TestHashesReadAsTheyAreWritten(t *testing.T) {
	h := HashKey("key")
	if got, err := ParseKeyHash(h.String()); got != h || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := ParseKeyHash("sha256:" + strings.ToUpper(h.String()[7:])); got != h || err != nil {
		t.Errorf("in capitals: %v, %v", got, err)
	}
	for _, text := range []string{"", "sha256:", "secret-key-itself", h.String()[7:], h.String() + "00", "sha256:" + strings.Repeat("g", 64), " " + h.String()} {
		if _, err := ParseKeyHash(text); err == nil || text != "" && strings.Contains(err.Error(), text) && text != "sha256:" {
			t.Errorf("%q: %v", text, err)
		}
	}
	// Within braces a hash is text too, whatever its digits look like.
	for _, digits := range []string{strings.Repeat("1", 64), "0x" + strings.Repeat("0", 62), strings.Repeat("7", 60) + "e123", strings.Repeat("0", 64)} {
		_, want := ParseKeyHash("sha256:" + digits)
		_, err := Parse("f", []byte(oneUpstream+"callers: [{name: a, keys: [sha256:"+digits+"]}]"), nil)
		if (want == nil) != (err == nil) {
			t.Errorf("%s: %v", digits, err)
		}
	}
}

func TestAKeyPastedForItsHashIsNeverShown(t *testing.T) {
	const key = "mgk_4f0a-this-is-the-key-itself"
	_, err := Parse("gateway.yaml", []byte(oneUpstream+"callers: [{name: a, keys: ["+key+"], proirity: x}]"), nil)
	var mistakes Errors
	if !errors.As(err, &mistakes) || len(mistakes) != 2 || !strings.Contains(err.Error(), "gateway key new") {
		t.Fatal(err)
	}
	for _, m := range mistakes {
		if strings.Contains(m.Msg+m.Excerpt, key) || !strings.Contains(m.Excerpt, "***") {
			t.Errorf("%s\n%s", m, m.Excerpt)
		}
	}
}

func TestTheDumpHasNoSecrets(t *testing.T) {
	text := `upstreams: # s3cret-value is noted here as well
  triton:
    endpoints: triton:8001
    headers: {authorization: "Bearer abcdefghij", x-a: s3cret-value, x-short: 'b', x-last: c}
    tls: {ca: system}
  other: {endpoints: b:1, headers: {x-b: &v s3cret-value}}
passthrough: true
callers: [{name: b, keys: [` + hash("1") + `, "` + hash("2") + `"]}]  # was ` + hash("0") + `
`
	c := good(t, text)
	got := string(c.Masked())
	for _, secret := range []string{"s3cret", "Bearer", "abcdef", hash("1")[16:], hash("2")[16:], hash("0")[16:], "'b'", "x-last: c"} {
		if strings.Contains(got, secret) {
			t.Errorf("%s is shown:\n%s", secret, got)
		}
	}
	for _, kept := range []string{`authorization: "masked"`, "x-short: 'masked'", "x-last: masked}", "{name: b, keys: [sha256:6b86b273...", "tls: {ca: system}"} {
		if !strings.Contains(got, kept) {
			t.Errorf("%s is gone:\n%s", kept, got)
		}
	}
	if string(c.Source) != text {
		t.Error("masking has changed the source")
	}
	for _, odd := range []string{
		oneUpstream[:len(oneUpstream)-3] + `, headers: {x-a: "s\x33cret"}}}`,
		"upstreams:\n  t:\n    endpoints: a:1\n    headers:\n      x-a: s3cret\n        second line\n",
		"upstreams:\n  t:\n    endpoints: a:1\n    headers:\n      x-a: >-\n        s3cret\n",
		oneUpstream + "callers: [{name: a, keys: [\"sha\\x3256:" + hash("1")[7:] + "\"]}]",
	} {
		if got := string(good(t, odd).Masked()); strings.Contains(got, "cret") || strings.Contains(got, hash("1")[16:]) {
			t.Errorf("%s\nis shown as\n%s", odd, got)
		}
	}
	if got := good(t, "", "TRITON_GRPC_HOST=a:1").Masked(); len(got) != 0 {
		t.Errorf("no file is shown as %q", got)
	}
	plain := oneUpstream + "auth: none\n"
	if got := string(good(t, plain).Masked()); got != plain {
		t.Errorf("a file without secrets is shown as %q", got)
	}
}

func TestFilesShowNoTexts(t *testing.T) {
	c := good(t, oneUpstream+"redis: {address: a:1, password_file: "+fileWith(t, "hunter22")+"}")
	if got := fmt.Sprintf("%v %+v %#v", c.Files, c.Files, c.Files); strings.Contains(got, "hunter22") {
		t.Error(got)
	}
}

func TestRedisNeedsARestartUnlessItsPasswordChanges(t *testing.T) {
	base := oneUpstream + "redis: {address: a:1"
	old := good(t, base+"}")
	for i := range reflect.TypeFor[Redis]().NumField() {
		changed, r := *old, *old.Redis
		changed.Redis = &r
		field := reflect.ValueOf(&r).Elem().Field(i)
		name := reflect.TypeFor[Redis]().Field(i).Name
		switch field.Kind() {
		case reflect.String:
			field.SetString("changed")
		case reflect.Slice:
			field.Set(reflect.ValueOf([]string{"b:1"}))
		case reflect.Pointer:
			field.Set(reflect.New(field.Type().Elem()))
		case reflect.Uint8:
			field.SetUint(2)
		default:
			field.SetInt(1)
		}
		free := name == "Password" || name == "WhenDown"
		if got := NeedsRestart(old, &changed); (len(got) == 0) != free {
			t.Errorf("a change of %s: %q", name, got)
		}
	}
	if got := NeedsRestart(old, good(t, oneUpstream)); !slices.Equal(got, []string{"redis"}) {
		t.Errorf("Redis gone: %q", got)
	}
}
