package inference

// DifferenceKind is what is the matter between two answers to one request. The higher of two is the graver.
type DifferenceKind uint8

// What may be the matter.
const (
	Same           DifferenceKind = iota // every number that was compared is as good as equal
	ValuesDiffer                         // numbers are further apart than their datatype's precision explains
	NotFinite                            // one has NaN or an infinity where the other has something else
	ShapeDiffers                         // an output has another shape, datatype or size
	OutputMissing                        // an output is in one of them only
	differenceKind                       // how many there are
)

var differenceNames = [differenceKind]string{"same", "different", "nan", "shape", "missing"}

// String is the kind's name on metrics.
func (k DifferenceKind) String() string { return differenceNames[k] }

// Difference is how the answer to a mirrored call differs from the one that the caller got.
type Difference struct {
	Kind   DifferenceKind
	Output string // the output that Kind was found in first; empty for Same
	// MaxAbs is the largest absolute difference of two numbers in the same place; 0 where no numbers were compared.
	MaxAbs float64
	// Value and Mirrored are the numbers there: the caller's and the copy's.
	Value, Mirrored float64
	Compared        int // elements
	// Scores are the confidences of the answers, where both have one that is finite.
	Scored               bool
	Score, MirroredScore float64
}
