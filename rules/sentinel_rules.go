package rules

// The rules of Sentinel under Sentinel-Go v1.0.4's own field names and enums, so that rules
// written for it paste in; a test holds the names to the library's. Pointers mark what must
// be told apart from 0.

// SentinelFamilies are the five kinds of Sentinel rules.
type SentinelFamilies struct {
	Flow           Family[FlowRule]      `json:"flow,omitzero"`
	Hotspot        Family[HotspotRule]   `json:"hotspot,omitzero"`
	System         Family[SystemRule]    `json:"system,omitzero"`
	Isolation      Family[IsolationRule] `json:"isolation,omitzero"`
	CircuitBreaker Family[BreakerRule]   `json:"circuitbreaker,omitzero"`
}

// FlowRule limits a resource on this instance.
type FlowRule struct {
	ID                     string  `json:"id,omitempty"`
	Resource               string  `json:"resource" need:""`
	TokenCalculateStrategy int32   `json:"tokenCalculateStrategy,omitempty"` // 0 direct, 1 warm-up
	ControlBehavior        int32   `json:"controlBehavior,omitempty"`        // 0 reject
	Threshold              float64 `json:"threshold" need:""`                // per statIntervalInMs
	RelationStrategy       int32   `json:"relationStrategy,omitempty"`       // 0 this resource, 1 refResource
	RefResource            string  `json:"refResource,omitempty"`
	MaxQueueingTimeMs      uint32  `json:"maxQueueingTimeMs,omitempty"`
	WarmUpPeriodSec        uint32  `json:"warmUpPeriodSec,omitempty"`
	WarmUpColdFactor       uint32  `json:"warmUpColdFactor,omitempty"` // 0: 3
	StatIntervalInMs       uint32  `json:"statIntervalInMs,omitempty"` // 0: 1000
	LowMemUsageThreshold   int64   `json:"lowMemUsageThreshold,omitempty"`
	HighMemUsageThreshold  int64   `json:"highMemUsageThreshold,omitempty"`
	MemLowWaterMarkBytes   int64   `json:"memLowWaterMarkBytes,omitempty"`
	MemHighWaterMarkBytes  int64   `json:"memHighWaterMarkBytes,omitempty"`
	Shadow                 bool    `json:"shadow,omitempty"`
}

// HotspotRule limits each value of one parameter.
type HotspotRule struct {
	ID                string         `json:"id,omitempty"`
	Resource          string         `json:"resource" need:""`
	MetricType        int32          `json:"metricType" need:""`        // 0 concurrency, 1 QPS
	ControlBehavior   int32          `json:"controlBehavior,omitempty"` // 0 reject
	ParamIndex        int            `json:"paramIndex,omitempty"`
	ParamKey          string         `json:"paramKey,omitempty"`
	Threshold         int64          `json:"threshold" need:""`
	MaxQueueingTimeMs int64          `json:"maxQueueingTimeMs,omitempty"`
	BurstCount        int64          `json:"burstCount,omitempty"`
	DurationInSec     int64          `json:"durationInSec,omitempty"`
	ParamsMaxCapacity int64          `json:"paramsMaxCapacity,omitempty"`
	SpecificItems     []SpecificItem `json:"specificItems,omitempty"`
	Engine            string         `json:"engine,omitempty" enum:"bounded,sentinel"` // bounded, sentinel; default by parameter
	Shadow            bool           `json:"shadow,omitempty"`
}

// SpecificItem is the threshold of one value.
type SpecificItem struct {
	ValKind   int    `json:"valKind"` // 0 int, 1 string: the value is compared as a string either way
	ValStr    string `json:"valStr" need:""`
	Threshold int64  `json:"threshold" need:""`
}

// SystemRule protects the whole instance.
type SystemRule struct {
	ID           string  `json:"id,omitempty"`
	MetricType   uint32  `json:"metricType" need:""` // 0 load, 1 RT ms, 2 concurrency, 3 QPS, 4 CPU
	TriggerCount float64 `json:"triggerCount" need:""`
	Strategy     *int32  `json:"strategy,omitempty"` // -1 none (default), 1 BBR
	Shadow       bool    `json:"shadow,omitempty"`
}

// IsolationRule bounds concurrency; advisory beside our own seats.
type IsolationRule struct {
	ID         string `json:"id,omitempty"`
	Resource   string `json:"resource" need:""`
	MetricType int32  `json:"metricType,omitempty"` // 0 concurrency
	Threshold  uint32 `json:"threshold" need:""`
	Shadow     bool   `json:"shadow,omitempty"`
}

// BreakerRule opens a resource's circuit.
type BreakerRule struct {
	ID                           string  `json:"id,omitempty"`
	Resource                     string  `json:"resource" need:""`
	Strategy                     uint32  `json:"strategy" need:""` // 0 slow ratio, 1 error ratio, 2 error count
	RetryTimeoutMs               uint32  `json:"retryTimeoutMs" need:""`
	MinRequestAmount             uint64  `json:"minRequestAmount,omitempty"`
	StatIntervalMs               uint32  `json:"statIntervalMs" need:""`
	StatSlidingWindowBucketCount uint32  `json:"statSlidingWindowBucketCount,omitempty"`
	MaxAllowedRtMs               uint64  `json:"maxAllowedRtMs,omitempty"`
	Threshold                    float64 `json:"threshold" need:""`
	ProbeNum                     uint64  `json:"probeNum,omitempty"` // 0 or 1
	Shadow                       bool    `json:"shadow,omitempty"`
}

// Resource names a Sentinel resource: a closed set. A SKU or a path is a parameter, never a name.
type Resource = string

// The resources.
const (
	ResourceSubmit  Resource = "seckill.submit"
	ResourceReserve Resource = "seckill.reserve"
	ResourceTicket  Resource = "seckill.ticket"
	ResourceJoin    Resource = "seckill.join"
	ResourceStatus  Resource = "seckill.status"
	ResourceOrder   Resource = "seckill.order"
	ResourceSession Resource = "seckill.session"
)

// Resources lists them all.
func Resources() []Resource {
	return []Resource{ResourceSubmit, ResourceReserve, ResourceTicket, ResourceJoin, ResourceStatus, ResourceOrder, ResourceSession}
}

// ShadowResource is where the shadow rules of a resource live in Sentinel: an entry on it
// counts what they would have refused, and its verdict is ignored.
func ShadowResource(r Resource) Resource { return r + "#shadow" }

// Param is the position of a hot parameter among an entry's arguments.
type Param int

// The parameters, all strings.
const (
	ParamSKU Param = iota
	ParamUser
	ParamDevice
	ParamSource
	ParamActivity
	Params // how many there are
)

var paramNames = [Params]string{"sku", "user", "device", "source", "activity"}

func (p Param) String() string {
	if p < 0 || p >= Params {
		return "unknown"
	}
	return paramNames[p]
}

// param resolves index and key of a rule; negative indexes count from the end, as in Sentinel.
func (r *HotspotRule) param() (Param, bool) {
	if r.ParamKey != "" {
		for i, n := range paramNames {
			if n == r.ParamKey {
				return Param(i), r.ParamIndex == 0 || r.ParamIndex == i
			}
		}
		return 0, false
	}
	p := Param(r.ParamIndex)
	if p < 0 {
		p += Params
	}
	return p, p >= 0 && p < Params
}

// bounded reports which engine runs the rule: ours for the parameters whose values are
// unbounded (users, devices, sources), Sentinel's for the rest.
func (r *HotspotRule) bounded() bool {
	if r.Engine != "" {
		return r.Engine == EngineBounded
	}
	p, _ := r.param()
	return p == ParamUser || p == ParamDevice || p == ParamSource
}

// The engines of hot-param rules.
const (
	EngineBounded  = "bounded"
	EngineSentinel = "sentinel"
)
