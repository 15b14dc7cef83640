package hold_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/OWNER/weir/clients/go/internal/hold"
	"github.com/OWNER/weir/clients/go/internal/weirtest"
)

// line is one line of a trace: an event, and the expected outcome.
type line struct {
	Trace string
	At    int64

	Check   *int64
	Tick    bool
	Close   bool
	Answer  *answer
	Lost    *struct{ Lease, Sequence int64 }
	Checked *struct {
		Cost, Sent int64
		Refused    bool
	}

	Do         string
	RetryAfter int64 `json:"retry_after"`
	Send       *hold.Request
	Held       int64
}

type answer struct {
	Lease, Sequence int64
	Refused         bool
	Grant           *struct {
		Units, Free int64
		IsKept      bool  `json:"is_kept"`
		IsRecalled  bool  `json:"is_recalled"`
		RefusedFor  int64 `json:"refused_for"`
	}
	Terms *struct {
		Generation  uint64
		TTL, Scarce int64
		HoldOff     int64 `json:"hold_off"`
	}
}

func (a *answer) read() *hold.Answer {
	told := &hold.Answer{Lease: a.Lease, Sequence: a.Sequence, Refused: a.Refused}
	if g := a.Grant; g != nil {
		told.Grant = &hold.Grant{Units: g.Units, Free: g.Free, IsKept: g.IsKept, Recalled: g.IsRecalled, RefusedFor: g.RefusedFor}
	}
	if t := a.Terms; t != nil {
		told.Terms = &hold.Terms{Generation: t.Generation, TTL: t.TTL, HoldOff: t.HoldOff, Scarce: t.Scarce}
	}
	return told
}

// outcome is what the state machine does at an event.
type outcome struct {
	do         string
	retryAfter int64
	request    hold.Request
	sends      bool
}

func TestTheMachineDoesWhatTheTracesSay(t *testing.T) {
	traces, err := os.ReadFile(filepath.Join(weirtest.Repository(t), "clients/traces/holder.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var machine *hold.Lease
	replayed := 0
	for number, text := range bytes.Split(bytes.TrimSpace(traces), []byte("\n")) {
		var event line
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&event); err != nil {
			t.Fatalf("line %d: %v", number+1, err)
		}
		if event.Trace != "" {
			machine = hold.New()
			continue
		}
		got, want := replay(machine, &event), expected(&event)
		if got != want || machine.Balance.Units() != event.Held {
			t.Fatalf("line %d: %s\n%+v\n%+v is right; held %d", number+1, text, got, want, machine.Balance.Units())
		}
		replayed++
	}
	if replayed < 1000 {
		t.Errorf("only %d events", replayed)
	}
}

func expected(event *line) outcome {
	o := outcome{do: event.Do, retryAfter: event.RetryAfter, sends: event.Send != nil}
	if o.sends {
		o.request = *event.Send
	}
	return o
}

func replay(machine *hold.Lease, event *line) (o outcome) {
	switch {
	case event.Check != nil:
		return check(machine, *event.Check, event.At)
	case event.Tick:
		o.request, o.sends = machine.Due(event.At)
	case event.Close:
		o.request, o.sends = machine.Close(event.At)
	case event.Answer != nil:
		o.request, o.sends = machine.Answered(event.Answer.read(), event.At)
	case event.Lost != nil:
		machine.Lost(event.Lost.Lease, event.Lost.Sequence, event.At)
	case event.Checked != nil && event.Checked.Refused:
		machine.Checked(event.Checked.Cost, event.Checked.Sent, event.At)
	}
	return o
}

func check(machine *hold.Lease, cost, now int64) (o outcome) {
	switch spent, _ := machine.Balance.Spend(cost, now); spent {
	case hold.Spent:
		return outcome{do: "spend"}
	case hold.Low:
		o.request, o.sends = machine.Low(now)
		o.do = "spend"
		return o
	}
	var do hold.Outcome
	do, o.retryAfter, o.request = machine.Short(cost, now)
	o.do, o.sends = [...]string{"check", "refuse", "ask"}[do], do == hold.Ask
	return o
}
