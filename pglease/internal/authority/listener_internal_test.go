package authority

import (
	"strings"
	"testing"
)

// FuzzRing reads whatever a stranger may send to a client's channel. What is taken for a ring has the one
// form that Ring sends.
func FuzzRing(f *testing.F) {
	for _, payload := range []string{"", "0000000000000000", "000000000000002a", "000000000000002A", "+00000000000002a", "-000000000000001", "0x00000000000002", "ffffffffffffffff", "7fffffffffffffff", "00000000_000002a", " 00000000000002a", "00000000000000002a", "000000000000002a" + "0000000000000007" + strings.Repeat("0f", 16), "000000000000002a" + "0000000000000000" + strings.Repeat("0f", 16), "000000000000002a" + "8000000000000000" + strings.Repeat("0f", 16), "000000000000002a" + "0000000000000007" + strings.Repeat("0F", 16), "000000000000002a" + "0000000000000007" + strings.Repeat("0g", 16)} {
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		ring, ok := parseRing(payload)
		if ok && (len(payload) != 16 && len(payload) != 64 || formatRing(ring) != payload) {
			t.Errorf("%q was taken for %+v", payload, ring)
		}
	})
}

// FuzzTicket sends every ring there can be.
func FuzzTicket(f *testing.F) {
	for _, n := range []int64{0, 1, 42, 1<<63 - 1, -1} {
		f.Add(n, n, []byte{byte(n)})
		f.Add(n, int64(0), []byte{})
	}
	f.Fuzz(func(t *testing.T, ticket, fence int64, lease []byte) {
		ring := Ring{Ticket: ticket, Fence: fence}
		if fence != 0 {
			var id ID
			copy(id[:], lease)
			ring.Proof = Prove(id)
		}
		payload := formatRing(ring)
		if ticket < 0 || fence < 0 {
			return // tickets and fences are drawn from 1 on; the look that tests a session has ticket 0
		}
		if back, ok := parseRing(payload); !ok || back != ring {
			t.Errorf("%+v came back as %+v, %v", ring, back, ok)
		}
	})
}
