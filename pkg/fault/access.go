package fault

import (
	"strconv"
	"strings"
)

// maxName is how much of a model's name is repeated to the client, in bytes.
const maxName = 256

// UnknownModel is the fault of a model that is not there, and word for word that of one whose existence is none of
// the caller's business. Both are made here alone, so that nobody can tell them apart.
func UnknownModel(name string) *Fault {
	return New(ModelNotFound, "model %q is not known here; check the name, or ask the repository index (RepositoryIndex, POST /v2/repository/index) which models there are", clipName(name))
}

// MayNot is the fault of a caller that no rule lets do what it asked. what is a verb with its object, such as "infer".
// model is "" where no single model is meant.
func MayNot(caller, what, model string) *Fault {
	if model != "" {
		return New(Forbidden, "caller %q may not %s model %q; ask the operator for a rule (access.rules)", caller, what, clipName(model))
	}
	return New(Forbidden, "caller %q may not %s; ask the operator for a rule (access.rules)", caller, what)
}

// NotAVersion is the fault of a version that is no number.
func NotAVersion(v string) *Fault {
	return New(BadVersion, "model_version %s is not a version; use a number above 0, or leave it empty for the model's default", strconv.QuoteToASCII(v[:min(len(v), 64)]))
}

// clipName bounds a name that came from a client, without leaving half a letter at the end.
func clipName(name string) string {
	if len(name) <= maxName {
		return name
	}
	return strings.ToValidUTF8(name[:maxName], "")
}
