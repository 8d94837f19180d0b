package k8s

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// api asks the API server for the slices of one service.
type api struct {
	base    string
	account string
	service Service
	client  *http.Client // nil until it is needed, and after a failure: the authorities may have been replaced
}

func newAPI(o Options) (*api, error) {
	a := &api{base: strings.TrimSuffix(o.API, "/"), account: o.Account}
	if a.account == "" {
		a.account = account
	}
	if a.base == "" {
		host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
		if host == "" || port == "" {
			return nil, errors.New("endpoints k8s:/// are found only inside a Kubernetes cluster, and KUBERNETES_SERVICE_HOST is not set here; use dns:///host:port elsewhere")
		}
		a.base = "https://" + net.JoinHostPort(host, port)
	}
	return a, nil
}

// namespace is that of the pod.
func (a *api) namespace() (string, error) {
	b, err := os.ReadFile(filepath.Join(a.account, "namespace"))
	if err != nil {
		return "", err
	}
	if s := strings.TrimSpace(string(b)); s != "" {
		return s, nil
	}
	return "", errors.New("its file is empty")
}

// list gives all slices.
func (a *api) list(ctx context.Context) (*sliceList, error) {
	body, err := a.get(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	all := new(sliceList)
	limited := &io.LimitedReader{R: body, N: maxList}
	if err := json.NewDecoder(limited).Decode(all); err != nil {
		if limited.N <= 0 {
			return nil, fmt.Errorf("the list of slices has more than %d bytes", maxList)
		}
		return nil, fmt.Errorf("the list of slices cannot be read: %w", err)
	}
	if len(all.Items) > maxKept {
		return nil, fmt.Errorf("the service has more than %d slices", maxKept)
	}
	return all, nil
}

// watch gives the stream of changes since version, which ends after length.
func (a *api) watch(ctx context.Context, version string, length time.Duration) (io.ReadCloser, error) {
	return a.get(ctx, url.Values{
		"watch": {"1"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {version},
		"timeoutSeconds": {strconv.Itoa(int(length.Seconds()))},
	})
}

// get asks for slices. The token is read each time: it is replaced every hour or so.
func (a *api) get(ctx context.Context, query url.Values) (io.ReadCloser, error) {
	if a.client == nil {
		if err := a.open(); err != nil {
			return nil, err
		}
	}
	if query == nil {
		query = url.Values{}
	}
	query.Set("labelSelector", "kubernetes.io/service-name="+a.service.Name)
	address := a.base + "/apis/discovery.k8s.io/v1/namespaces/" + url.PathEscape(a.service.Namespace) + "/endpointslices?" + query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	token, err := os.ReadFile(filepath.Join(a.account, "token"))
	if err != nil {
		return nil, fmt.Errorf("the service account's token cannot be read: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	answer, err := a.client.Do(request)
	if err != nil {
		a.close()
		return nil, err
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	defer func() { _ = answer.Body.Close() }()
	return nil, a.refusal(answer)
}

// refusal is the error that an answer other than 200 means.
func (a *api) refusal(answer *http.Response) error {
	switch answer.StatusCode {
	case http.StatusGone:
		return errGone
	case http.StatusUnauthorized:
		return errors.New("the API server does not accept the service account's token (401)")
	case http.StatusForbidden:
		return fmt.Errorf("the service account may not read EndpointSlices (403); give it a Role in namespace %s with get, list and watch on endpointslices of discovery.k8s.io", a.service.Namespace)
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 512))
	return fmt.Errorf("the API server answered %s: %s", answer.Status, clip(strings.TrimSpace(string(text))))
}

// open makes the client.
func (a *api) open() error {
	transport := &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout:   5 * time.Second,
		ResponseHeaderTimeout: listTimeout,
		IdleConnTimeout:       time.Minute,
		MaxIdleConns:          2,
		ForceAttemptHTTP2:     true,
		// A watch is silent for minutes: without pings, a connection that is dead would look the same.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
	}
	if strings.HasPrefix(a.base, "https:") {
		pem, err := os.ReadFile(filepath.Join(a.account, "ca.crt"))
		if err != nil {
			return fmt.Errorf("the cluster's authorities cannot be read: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return errors.New("the cluster's ca.crt has no certificate")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	a.client = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token goes nowhere else
	}
	return nil
}

// close ends idle connections; the next request makes new ones.
func (a *api) close() {
	if a.client != nil {
		a.client.CloseIdleConnections()
		a.client = nil
	}
}
