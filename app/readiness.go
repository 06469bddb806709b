package main

import "fmt"

// unread is what an instance has not read yet since its start, and without which it would
// answer people wrongly: which activities there are, and how far those that are open have come.
func (s *service) unread() (reasons []string) {
	if !s.directory.Read() {
		return []string{"the activities are not read yet"}
	}
	now := s.now()
	for _, a := range s.directory.All() {
		if !a.Ended && !now.Before(a.OpensAt) && now.Before(a.ClosesAt) && !s.room.Knows(a.ID) {
			reasons = append(reasons, fmt.Sprintf("the waiting room of activity %s is not read yet", a.ID))
		}
	}
	return reasons
}
