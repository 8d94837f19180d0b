package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// maxFaultBody bounds what may be posted.
const maxFaultBody = 64 << 10

// faultJSON is a Fault with its delay and code as people write them.
type faultJSON struct {
	plainFault
	Delay string `json:"delay,omitempty"`
	Code  string `json:"code,omitempty"`
}

type plainFault Fault

// MarshalJSON writes the delay as "200ms" and the code as "UNAVAILABLE".
func (f Fault) MarshalJSON() ([]byte, error) {
	j := faultJSON{plainFault: plainFault(f)}
	if f.Delay > 0 {
		j.Delay = f.Delay.String()
	}
	if f.Code != codes.OK {
		j.Code = codeText(f.Code)
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON writes. Unknown keys are errors.
func (f *Fault) UnmarshalJSON(b []byte) error {
	var j faultJSON
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return err
	}
	*f = Fault(j.plainFault)
	if j.Delay != "" {
		delay, err := time.ParseDuration(j.Delay)
		if err != nil {
			return fmt.Errorf("delay: %q is no time; write such as 200ms", j.Delay)
		}
		f.Delay = delay
	}
	if j.Code != "" {
		if err := f.Code.UnmarshalJSON([]byte(`"` + strings.ToUpper(j.Code) + `"`)); err != nil {
			return fmt.Errorf("code: %q is no gRPC code; write such as UNAVAILABLE", j.Code)
		}
	}
	return nil
}

// codeText gives the upper-case name of a gRPC code.
func codeText(c codes.Code) string {
	if c == codes.Canceled {
		return "CANCELLED"
	}
	var b strings.Builder
	for i, ch := range c.String() {
		if i > 0 && 'A' <= ch && ch <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(ch)
	}
	return strings.ToUpper(b.String())
}

// FaultsHandler lets people play faults: GET lists them, POST sets one, DELETE ends all, or with ?model= those of a model.
//
//	curl -X POST -d '{"kind":"slow","model":"fraud","delay":"200ms"}' http://…/faults
//	curl -X DELETE http://…/faults
func (s *Server) FaultsHandler() http.Handler {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet, http.MethodHead:
		case http.MethodPost:
			if err := s.postFault(w, r); err != nil {
				answer(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
				return
			}
		case http.MethodDelete:
			if model := r.URL.Query().Get("model"); model != "" {
				s.Faults.ClearModel(model)
			} else {
				s.Faults.Clear()
			}
		default:
			w.Header().Set("Allow", "GET, POST, DELETE")
			answer(w, http.StatusMethodNotAllowed, map[string]string{"error": "use GET, POST or DELETE"})
			return
		}
		answer(w, http.StatusOK, map[string]any{"faults": s.Faults.List(), "kinds": faultKinds})
	})
	return http.NewCrossOriginProtection().Handler(h)
}

func (s *Server) postFault(w http.ResponseWriter, r *http.Request) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxFaultBody))
	var f Fault
	if err := d.Decode(&f); err != nil {
		return fmt.Errorf("the body must be one fault as JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the body must be one fault as JSON, with nothing behind it")
	}
	_, err := s.Faults.Set(f)
	return err
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(body) // the client is gone
}
