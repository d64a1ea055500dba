package authority

import "testing"

// FuzzRing reads whatever a stranger may send to a client's channel. What is taken for a ring has the one
// form that Ring sends.
func FuzzRing(f *testing.F) {
	for _, payload := range []string{"", "0000000000000000", "000000000000002a", "000000000000002A", "+00000000000002a", "-000000000000001", "0x00000000000002", "ffffffffffffffff", "7fffffffffffffff", "00000000_000002a", " 00000000000002a", "00000000000000002a"} {
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		ticket, ok := parseTicket(payload)
		if ok && (len(payload) != 16 || formatTicket(ticket) != payload) {
			t.Errorf("%q was taken for ticket %d", payload, ticket)
		}
	})
}

// FuzzTicket sends every ticket there can be.
func FuzzTicket(f *testing.F) {
	for _, ticket := range []int64{0, 1, 42, 1<<63 - 1, -1} {
		f.Add(ticket)
	}
	f.Fuzz(func(t *testing.T, ticket int64) {
		payload := formatTicket(ticket)
		if ticket < 0 {
			return // tickets are drawn from a sequence, from 1 on; the look that tests a session is 0
		}
		if back, ok := parseTicket(payload); !ok || back != ticket {
			t.Errorf("ticket %d came back as %d, %v", ticket, back, ok)
		}
	})
}
