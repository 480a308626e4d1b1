// Package lines is the one protocol of every referee: a JSON value a line in, a JSON value a line out, in order.
package lines

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
)

// Serve answers every request on stdin until it is closed. Answers are flushed when no further request is waiting, so
// that a batch costs one write and a single question is answered at once.
func Serve[Request, Answer any](answer func(Request) Answer) {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "read:", err)
			os.Exit(1)
		}
		if err := encoder.Encode(guarded(line, answer)); err != nil {
			fmt.Fprintln(os.Stderr, "write:", err)
			os.Exit(1)
		}
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				os.Exit(1)
			}
		}
	}
	_ = out.Flush()
}

// broken is the answer to a request that this program could not read or did not survive.
type broken struct {
	Broken string `json:"broken"`
}

func guarded[Request, Answer any](line []byte, answer func(Request) Answer) (result any) {
	defer func() {
		if cause := recover(); cause != nil {
			result = broken{fmt.Sprintf("panic: %v\n%s", cause, debug.Stack())}
		}
	}()
	var request Request
	if err := json.Unmarshal(line, &request); err != nil {
		return broken{"request: " + err.Error()}
	}
	return answer(request)
}
