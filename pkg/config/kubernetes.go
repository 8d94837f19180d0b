package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Kubernetes is a service whose ready pods are the endpoints of an upstream.
type Kubernetes struct {
	Namespace string // "" is that of the gateway's own pod
	Service   string
	Port      string // of the pods: a number, or the name of one of the service's ports
}

func (k Kubernetes) String() string {
	if k.Namespace == "" {
		return kubernetesScheme + k.Service + ":" + k.Port
	}
	return kubernetesScheme + k.Namespace + "/" + k.Service + ":" + k.Port
}

const (
	kubernetesScheme = "k8s:///"
	kubernetesForm   = "k8s:///namespace/service:port"
	maxLabel         = 63 // bytes of a name in Kubernetes
)

// find notes where the addresses of u are found: target is dns:///host:port, dns://server/host:port or
// k8s:///namespace/service:port.
func (u *Upstream) find(target string) (err error) {
	if !strings.HasPrefix(target, "k8s:") {
		u.DNSServer, u.DNS, err = parseDNS(target)
		return err
	}
	k, err := parseKubernetes(target)
	u.Kubernetes = &k
	return err
}

// parseKubernetes reads k8s:///namespace/service:port, or k8s:///service:port.
func parseKubernetes(target string) (k Kubernetes, err error) {
	rest, ok := strings.CutPrefix(target, kubernetesScheme)
	if !ok {
		return k, errors.New("must have three slashes, " + kubernetesForm + ": the API server of the gateway's own cluster is asked")
	}
	name, port, ok := strings.Cut(rest, ":")
	if !ok || port == "" {
		return k, errors.New("must end with the port of the pods, a number or a port's name: " + kubernetesForm)
	}
	if namespace, service, has := strings.Cut(name, "/"); has {
		if k.Namespace, name = namespace, service; !isLabel(namespace) {
			return k, fmt.Errorf("has the namespace %q, which none can have; write %s", clip(namespace), kubernetesForm)
		}
	}
	if k.Service, k.Port = name, port; !isLabel(name) {
		return k, fmt.Errorf("has the service %q, which none can be called; write %s, with the service's plain name", clip(name), kubernetesForm)
	}
	if n, err := strconv.Atoi(port); err == nil && (n < 1 || n > 65535) || err != nil && !isLabel(port) {
		return k, fmt.Errorf("has the port %q; it must be a number from 1 to 65535, or the name of one of the service's ports", clip(port))
	}
	return k, nil
}

// isLabel reports whether Kubernetes takes s for the name of a namespace, a service or a port.
func isLabel(s string) bool {
	return s != "" && len(s) <= maxLabel && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" && s[0] != '-' && s[len(s)-1] != '-'
}
