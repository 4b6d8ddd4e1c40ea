// quantity answers how Go reads a Kubernetes quantity or a duration, so that tests can hold our own reading
// against the one that every cluster uses. One question a line on stdin, one JSON object a line on stdout:
//
//	quantity 1.5Gi    {"canonical":"1536Mi","decimal":"1610612736.000000000","milli":1610612736000,"value":1610612736}
//	duration 90s      {"canonical":"1m30s","nanoseconds":90000000000}
//	quantity 1.5Z     {"error":"…"}
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

func quantity(text string) map[string]any {
	parsed, err := resource.ParseQuantity(text)
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	// String would give back the text that was parsed: a quantity remembers it.
	number, suffix := parsed.CanonicalizeBytes(nil)
	return map[string]any{
		"canonical": string(number) + string(suffix),
		"milli":     parsed.MilliValue(),
		"value":     parsed.Value(),
		"decimal":   parsed.AsDec().String(), // last, for it changes how the quantity is held
	}
}

func duration(text string) map[string]any {
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	return map[string]any{"canonical": parsed.String(), "nanoseconds": parsed.Nanoseconds()}
}

func answer(question string) map[string]any {
	kind, text, _ := strings.Cut(question, " ")
	switch kind {
	case "quantity":
		return quantity(text)
	case "duration":
		return duration(text)
	}
	log.Fatalf("a question starts with quantity or duration, not %q", kind)
	return nil
}

func main() {
	questions, answers := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		line, err := questions.ReadString('\n')
		if line != "" {
			if err := answers.Encode(answer(strings.TrimSuffix(line, "\n"))); err != nil {
				log.Fatal(err)
			}
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			log.Fatal(err)
		}
	}
}
