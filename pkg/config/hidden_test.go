package config

import (
	"strings"
	"testing"
)

func TestWhatLooksLikeACredentialIsStarredOutOfABrokenLine(t *testing.T) {
	for _, line := range []string{
		`headers: {authorization: "Bearer s3cr3t-t0ken`, `authorization: Basic s3cr3t==`, `  password: s3cr3t`, `keys: [mgw_s3cr3t`,
		`"x-api-key": 's3cr3t'`, `triton-grpc-protocol-infer: s3cr3t`,
	} {
		if got := hidden(line); strings.Contains(got, "s3cr3t") || len(got) != len(line) {
			t.Errorf("%s is shown as %s", line, got)
		}
	}
	for _, line := range []string{`password_file: /secrets/redis`, `models: [{name: fraud, limits: [{per: user, rate: 1/s}]}]`} {
		if got := hidden(line); got != line {
			t.Errorf("%s is shown as %s", line, got)
		}
	}
	if _, err := Parse("x.yaml", []byte("version: 1\nupstreams: {a: {headers: {authorization: \"Bearer s3cr3t}}\n"), nil); err == nil || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("got %v", err)
	}
}

func TestRulesThatHaveGoneMissingAreToldFromRulesThatWereTakenAway(t *testing.T) {
	old := &Config{Auth: AuthRequired, Access: Access{Rules: make([]AccessRule, 1), Stated: true}}
	for want, next := range map[bool]*Config{true: {Auth: AuthRequired}, false: {Auth: AuthRequired, Access: Access{Stated: true}}} {
		if AccessLoosened(old, next) != want {
			t.Errorf("%+v: want %v", next, want)
		}
	}
}
