package k8s

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// slice is what matters of an EndpointSlice of discovery.k8s.io/v1.
type slice struct {
	Metadata    metadata   `json:"metadata"`
	AddressType string     `json:"addressType"`
	Endpoints   []endpoint `json:"endpoints"`
	Ports       []port     `json:"ports"`
}

type metadata struct {
	Name            string `json:"name"`
	ResourceVersion string `json:"resourceVersion"`
}

type endpoint struct {
	Addresses  []string `json:"addresses"`
	Conditions struct {
		Ready *bool `json:"ready"` // nil is taken for true
	} `json:"conditions"`
	TargetRef *struct {
		Kind      string `json:"kind"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"targetRef"`
}

type port struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	Port     int    `json:"port"`
}

// sliceList is the answer to a list.
type sliceList struct {
	Metadata metadata `json:"metadata"`
	Items    []slice  `json:"items"`
}

// event is one line of a watch.
type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// Bounds of what is read.
const (
	maxList  = 64 << 20 // bytes
	maxEvent = 4 << 20  // bytes of one event; the API server stores nothing above 1.5 MiB
	maxKept  = 2048     // slices of one service
)

// errGone says that the API server no longer knows the version to go on from.
var errGone = errors.New("the version to watch from is gone")

// follow reads events from body and applies them to known, calling changed after each that is about a slice. It gives the
// last version seen, and nil when the stream has ended as it should.
func follow(body io.Reader, version string, known map[string]slice, changed func()) (string, error) {
	budget := &budgetReader{r: body, left: maxEvent}
	events := json.NewDecoder(budget)
	for {
		var e event
		if err := events.Decode(&e); err != nil {
			if errors.Is(err, io.EOF) {
				return version, nil
			}
			return version, fmt.Errorf("the watch broke off: %w", err)
		}
		budget.left = maxEvent
		if e.Type == "ERROR" {
			return version, statusOf(e.Object)
		}
		var s slice
		if err := json.Unmarshal(e.Object, &s); err != nil {
			return version, fmt.Errorf("an event of the watch cannot be read: %w", err)
		}
		if s.Metadata.ResourceVersion != "" {
			version = s.Metadata.ResourceVersion
		}
		switch e.Type {
		case "ADDED", "MODIFIED":
			if _, has := known[s.Metadata.Name]; !has && len(known) >= maxKept {
				return version, fmt.Errorf("the service has more than %d slices", maxKept)
			}
			known[s.Metadata.Name] = s
		case "DELETED":
			delete(known, s.Metadata.Name)
		default: // BOOKMARK has a version and nothing else
			continue
		}
		changed()
	}
}

// statusOf is the error that an ERROR event tells of.
func statusOf(object json.RawMessage) error {
	var status struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	_ = json.Unmarshal(object, &status) // what cannot be read is an error as well
	if status.Code == http.StatusGone {
		return errGone
	}
	return fmt.Errorf("the watch ended with status %d: %s", status.Code, clip(status.Message))
}

// budgetReader fails when more is read than is left.
type budgetReader struct {
	r    io.Reader
	left int
}

func (b *budgetReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("an event has more than %d bytes", maxEvent)
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// addresses gives host:port of every endpoint that is ready, sorted, each once, or says why there is none. Of a pod with
// addresses of both families only the IPv4 one counts: it is one server.
func addresses(known map[string]slice, wanted string) ([]string, error) {
	found := make(map[string]string) // by pod, or by address where there is no pod
	unready, named := 0, map[string]bool{}
	for _, s := range known {
		number, ok := portOf(s, wanted, named)
		if !ok {
			continue
		}
		for _, e := range s.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				unready++
				continue
			}
			host := hostOf(s, e)
			if host == "" {
				continue
			}
			key := host
			if t := e.TargetRef; t != nil && t.Name != "" {
				key = t.Kind + "/" + t.Namespace + "/" + t.Name + ":" + number
			}
			if _, has := found[key]; has && s.AddressType == "IPv6" {
				continue
			}
			found[key] = net.JoinHostPort(host, number)
		}
	}
	if len(found) == 0 {
		return nil, none(known, wanted, unready, named)
	}
	all := make([]string, 0, len(found))
	for _, a := range found {
		all = append(all, a)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(len(all), maxEndpoints)], nil
}

// hostOf is the address of an endpoint; further addresses of it mean nothing. "" when it has none that is one.
func hostOf(s slice, e endpoint) string {
	if len(e.Addresses) == 0 {
		return ""
	}
	host := e.Addresses[0]
	if s.AddressType == "FQDN" {
		if host == "" || len(host) > 253 || strings.ContainsAny(host, "/:[]% \t\r\n") {
			return ""
		}
		return host
	}
	if ip := net.ParseIP(host); ip == nil {
		return ""
	}
	return host
}

// portOf is the number of the wanted port in s. The names that it has go into named.
func portOf(s slice, wanted string, named map[string]bool) (string, bool) {
	if _, err := strconv.ParseUint(wanted, 10, 16); err == nil {
		return wanted, true
	}
	for _, p := range s.Ports {
		if p.Protocol != "" && p.Protocol != "TCP" {
			continue
		}
		if p.Name == wanted && p.Port > 0 && p.Port < 1<<16 {
			return strconv.Itoa(p.Port), true
		}
		named[clip(p.Name)] = true
	}
	return "", false
}

// none says why there is no address.
func none(known map[string]slice, wanted string, unready int, named map[string]bool) error {
	switch {
	case len(known) == 0:
		return errors.New("the service has no endpoints, or does not exist")
	case unready > 0:
		return fmt.Errorf("none of the service's %d endpoints is ready", unready)
	case len(named) > 0:
		names := make([]string, 0, len(named))
		for n := range named {
			names = append(names, strconv.Quote(n))
		}
		slices.Sort(names)
		return fmt.Errorf("the service has no port named %q; it has %s", wanted, strings.Join(names[:min(len(names), 8)], ", "))
	}
	return errors.New("the service has no endpoints")
}

// clip bounds what is repeated of foreign words.
func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "..."
	}
	return s
}
