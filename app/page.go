package main

import (
	"github.com/sluice-io/sluice/app/httpapi"
)

// page is the activity page and its assets.
func (s *service) page() httpapi.Page { return httpapi.Page{} }
