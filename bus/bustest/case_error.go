package bustest

import "errors"

// hasCode fails the case unless err has the code.
func (e *env) hasCode(err error, code string) {
	var coded interface{ Code() string }
	e.want(errors.As(err, &coded) && coded.Code() == code, "%v: want the code %s", err, code)
}
