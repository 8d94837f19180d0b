package admin

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/model-gateway/model-gateway/pkg/fault"
	"github.com/model-gateway/model-gateway/pkg/inference"
)

// Callers knows callers by the credentials they send.
type Callers interface {
	// Authenticate finds out who sends call by its Incoming and TLS; nil where nobody is asked for credentials.
	Authenticate(ctx context.Context, call *inference.Call) (caller *inference.Caller, user string, err error)
	// ByKey finds the caller whose key it is; nil when it is nobody's.
	ByKey(key string) *inference.Caller
}

// Access says who is an operator.
type Access interface {
	// Allows reports whether caller may do kind.
	Allows(caller *inference.Caller, model string, kind inference.Kind) bool
}

// guard lets operators in. On loopback these are all who reach the port, unless a web page of another origin has sent them;
// beyond it they are callers with the kind admin. Whoever it lets in is noted for the audit.
type guard struct {
	loopback bool
	callers  Callers
	access   Access
	next     http.Handler
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who := byLoopback
	switch {
	case !g.loopback:
		caller, err := g.operator(r)
		if err != nil {
			refuse(w, err)
			return
		}
		who = caller.Name
	case !localHost(r.Host):
		text(w, http.StatusForbidden, "unknown Host header; use the address of listen.admin\n")
		return
	default:
		if caller := g.byKey(r); caller != nil { // not needed here, and yet good to know
			who = caller.Name
		}
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead && !sameOrigin(r) {
		text(w, http.StatusForbidden, "changes from other origins are refused\n")
		return
	}
	g.next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), whoKey{}, who)))
}

// byLoopback is who changes something from this machine without saying more.
const byLoopback = "loopback"

type whoKey struct{}

// who gives the operator that guard let in.
func who(r *http.Request) string {
	name, _ := r.Context().Value(whoKey{}).(string)
	return name
}

// operator gives the caller that sends r, when it is one that may use the port.
func (g *guard) operator(r *http.Request) (*inference.Caller, error) {
	if g.callers == nil || g.access == nil {
		return nil, errClosed
	}
	caller := g.byKey(r)
	if caller == nil {
		_, _, basic := r.BasicAuth()
		if basic {
			return nil, errPassword
		}
		call := &inference.Call{Kind: inference.Admin, TLS: r.TLS, Incoming: credentials(r.Header), Start: time.Now()}
		var err error
		if caller, _, err = g.callers.Authenticate(r.Context(), call); err != nil {
			return nil, err
		}
		if caller == nil { // credentials are asked of nobody, or could not be judged
			return nil, errWho
		}
	}
	if !g.access.Allows(caller, "", inference.Admin) {
		return nil, fault.MayNot(caller.Name, "use the admin port (kind admin)", "")
	}
	return caller, nil
}

var (
	errClosed   = fault.New(fault.Forbidden, "the admin port is open on a loopback address only (listen.admin) while no callers are declared")
	errPassword = fault.New(fault.AuthInvalid, "the password is not the key of any caller; any user name will do, the password is a key")
	errWho      = fault.New(fault.AuthMissing, "beyond loopback the admin port takes callers with the kind admin (callers, access.rules); send a key as x-api-key, as authorization: Bearer, or as the password of HTTP Basic")
)

// byKey gives the caller whose key r carries, in whichever way; nil when it carries none that is known.
func (g *guard) byKey(r *http.Request) *inference.Caller {
	if g.callers == nil {
		return nil
	}
	if keys := r.Header.Values("X-Api-Key"); len(keys) > 0 {
		if len(keys) > 1 {
			return nil
		}
		return g.callers.ByKey(keys[0])
	}
	if len(r.Header.Values("Authorization")) != 1 {
		return nil
	}
	if _, password, ok := r.BasicAuth(); ok {
		return g.callers.ByKey(password)
	}
	scheme, key, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return nil
	}
	return g.callers.ByKey(strings.TrimSpace(key))
}

// credentials gives the headers that a call's metadata would have.
func credentials(h http.Header) map[string][]string {
	in := make(map[string][]string, 2)
	for _, name := range []string{"x-api-key", "authorization"} {
		if v := h.Values(name); len(v) > 0 {
			in[name] = v
		}
	}
	return in
}

// refuse answers with a fault. A browser asks for the key then, as a password.
func refuse(w http.ResponseWriter, err error) {
	f := fault.Of(err)
	if f.HTTP() == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="model-gateway: any name, a key as password", charset="UTF-8"`)
	}
	text(w, f.HTTP(), f.Msg+"\n")
}

// localHost reports whether a Host header names this machine; a name that resolves to it may be an attacker's.
func localHost(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	if name == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil && ip.IsLoopback()
}

// sameOrigin reports whether no page of another origin has sent r. Behind a proxy the page may have come by TLS.
func sameOrigin(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	return len(origins) == 0 || (len(origins) == 1 && slices.Contains([]string{"http://" + r.Host, "https://" + r.Host}, origins[0]))
}
