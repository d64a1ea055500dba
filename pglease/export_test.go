package pglease

import "github.com/pglease/pglease/pglease/internal/authority"

// NewWithAuthority lets tests put a fake where Postgres would be.
func NewWithAuthority(auth authority.Authority, config Config) (*Client, error) {
	config, _, err := config.filled()
	if err != nil {
		return nil, err
	}
	return newClient(auth, config), nil
}
