package peers_test

import (
	"testing"

	"github.com/pglease/pglease/pglease/pgleasetest"
)

func TestMain(m *testing.M) { pgleasetest.Main(m) }
