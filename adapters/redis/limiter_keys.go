package redis

import (
	"hash/fnv"
	"strconv"

	"github.com/sluice-io/sluice/app/admission"
)

// The limiter store's keys. All keys of one script share a hash tag.

func replayKey(userID, nonce string) string {
	return "rl:replay:" + admission.UserTag(userID) + ":" + nonce
}

func requestKey(userID, requestID string) string {
	return "rl:req:" + admission.UserTag(userID) + ":" + requestID
}

// bucketTag is the tag of a budget: a SKU's, or the whole activity's when SKUID is "".
func bucketTag(ref admission.SKURef) string {
	if ref.SKUID == "" {
		return admission.ActivityTag(ref.ActivityID)
	}
	return ref.Tag()
}

func leaseKey(ref admission.SKURef) string  { return "rl:lease:" + bucketTag(ref) }
func budgetKey(ref admission.SKURef) string { return "sec:admission:" + bucketTag(ref) }

// roomParts is how many hashes hold an activity's users, so that none of them takes long
// to read, move or remove. They lie in roomGroups groups with a tag each: a burst of joins
// is spread over a cluster, and only the count of numbers is one key.
const (
	roomParts  = 256
	roomGroups = 16
)

func roomPart(userID string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(userID)) // never fails
	return int(h.Sum32() % roomParts)
}

func roomGroup(part int) int { return part % roomGroups }

func roomGroupKey(activityID string, group int, name string) string {
	return "room:{a:" + activityID + ":" + strconv.Itoa(group) + "}:" + name
}

func roomUsersKey(activityID string, part int) string {
	return roomGroupKey(activityID, roomGroup(part), "users:"+strconv.Itoa(part))
}

func roomLogKey(activityID string, group int) string {
	return roomGroupKey(activityID, group, "log")
}

func roomClosedKey(activityID string, group int) string {
	return roomGroupKey(activityID, group, "closed")
}

func roomNumbersKey(activityID string) string {
	return "room:" + admission.ActivityTag(activityID) + ":numbers"
}

func roomStateKey(activityID string) string {
	return "room:" + admission.ActivityTag(activityID) + ":state"
}

const (
	instancesKey = "sec:instances"
	highWaterKey = "sec:rules:high_water"
)

func leaderKey(role string) string { return "sec:leader:" + role }
