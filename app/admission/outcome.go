package admission

// Outcome is what Sluice says to a caller. The zero value is Pass: go on.
type Outcome uint8

// The outcomes, in the order of the table in the README.
const (
	Pass Outcome = iota
	Queued
	SoldOut
	Replayed
	QueueWaiting
	InvalidArgument
	RequestIDConflict
	Unauthenticated
	ChallengeRequired
	TokenInvalid
	TokenExpired
	ReplayRejected
	ActivityNotOpen
	ActivityEnded
	Forbidden
	NotFound
	MethodNotAllowed
	BodyTimeout
	LengthRequired
	BodyTooLarge
	UnsupportedMediaType
	ExpectationFailed
	AlreadyPurchased
	OrderStateConflict
	RateLimited
	Overloaded
	OverloadedQueueOnly
	OverloadedClosed
	DependencyUnavailable
	PollQueued
	PollOrderCreated
	PollOrderPaid
	PollOrderCancelled
	PollNoCapacity
	PollDuplicate

	Outcomes // how many there are
)

// Status is the state of a request as its owner sees it.
type Status string

// The statuses. Replayed has none of its own: it carries the request's current one.
const (
	StatusQueued       Status = "QUEUED"
	StatusSoldOut      Status = "SOLD_OUT"
	StatusWaiting      Status = "WAITING"
	StatusRejected     Status = "REJECTED"
	StatusRateLimited  Status = "RATE_LIMITED"
	StatusOverloaded   Status = "OVERLOADED"
	StatusUnknown      Status = "UNKNOWN"
	StatusOrderCreated Status = "ORDER_CREATED"
	StatusPaid         Status = "PAID"
	StatusCancelled    Status = "CANCELLED"
	StatusFailed       Status = "FAILED"
)

// NextAction tells a client what to do with an answer.
type NextAction string

// The actions of 10-http-api.
const (
	ActionPoll                 NextAction = "POLL"
	ActionStop                 NextAction = "STOP"
	ActionFollowResult         NextAction = "FOLLOW_RESULT"
	ActionWait                 NextAction = "WAIT"
	ActionFixRequest           NextAction = "FIX_REQUEST"
	ActionReauthenticate       NextAction = "REAUTHENTICATE"
	ActionSolveChallenge       NextAction = "SOLVE_CHALLENGE"
	ActionQueryThenRequeue     NextAction = "QUERY_THEN_REQUEUE"
	ActionQuery                NextAction = "QUERY"
	ActionRetrySameID          NextAction = "RETRY_SAME_ID"
	ActionRequeue              NextAction = "REQUEUE"
	ActionQueryThenRetrySameID NextAction = "QUERY_THEN_RETRY_SAME_ID"
	ActionPay                  NextAction = "PAY"
)

// Row is one line of the outcome table.
type Row struct {
	HTTP       int
	Code       string
	Status     Status
	NextAction NextAction
	Retryable  bool
	English    string // the message
	Chinese    string //
}

// Row returns the outcome's line. It panics for Pass and for a value outside the
// table: both are programming faults, and the guard turns them into a refusal.
func (o Outcome) Row() Row {
	if o == Pass || o >= Outcomes {
		panic("admission: outcome without a row")
	}
	return rows[o]
}

// String returns the outcome's code, "PASS" for the zero value.
func (o Outcome) String() string {
	if o == Pass || o >= Outcomes {
		return "PASS"
	}
	return rows[o].Code
}

// Shed reports whether the outcome is a 503 of ours: what the user, device and
// source were charged goes back, since it was not they who were too fast.
func (o Outcome) Shed() bool {
	switch o {
	case Overloaded, OverloadedQueueOnly, OverloadedClosed, DependencyUnavailable:
		return true
	default:
		return false
	}
}

// What SoldOut says instead of its row's message to somebody who wanted more units than are
// left: the shelf is not empty, and the row's words would claim that it is.
const (
	TooFewEnglish = "Fewer units are left than you asked for."
	TooFewChinese = "剩余数量少于您所选的数量。"
)

// rows is the only place where a verdict meets HTTP. A test demands full rows and
// that the README's table agrees.
var rows = [Outcomes]Row{
	Queued:                {202, "SECKILL_QUEUED", StatusQueued, ActionPoll, false, "Reserved. The order is being created; poll for the result.", "已为您保留，订单正在创建，请查询结果。"},
	SoldOut:               {200, "SECKILL_SOLD_OUT", StatusSoldOut, ActionStop, false, "Sold out.", "已售罄。"},
	Replayed:              {200, "REQUEST_REPLAYED", "", ActionFollowResult, false, "This request was received before; here is its current result.", "该请求已收到，以下为其当前结果。"},
	QueueWaiting:          {200, "QUEUE_WAITING", StatusWaiting, ActionWait, true, "It is not your turn yet.", "还未轮到您，请稍候。"},
	InvalidArgument:       {400, "INVALID_ARGUMENT", StatusRejected, ActionFixRequest, false, "The request is malformed.", "请求格式不正确。"},
	RequestIDConflict:     {400, "REQUEST_ID_CONFLICT", StatusRejected, ActionStop, false, "This request_id was used with different content.", "该 request_id 已用于不同的内容。"},
	Unauthenticated:       {401, "UNAUTHENTICATED", StatusRejected, ActionReauthenticate, false, "Sign in first.", "请先登录。"},
	ChallengeRequired:     {403, "CHALLENGE_REQUIRED", StatusRejected, ActionSolveChallenge, true, "Solve the challenge to join.", "请先完成验证再加入。"},
	TokenInvalid:          {403, "TOKEN_INVALID", StatusRejected, ActionStop, false, "The ticket is not valid for this request.", "凭证无效。"},
	TokenExpired:          {403, "TOKEN_EXPIRED", StatusRejected, ActionQueryThenRequeue, false, "The ticket has expired.", "凭证已过期。"},
	ReplayRejected:        {403, "REPLAY_REJECTED", StatusRejected, ActionQuery, false, "The ticket was used by another request.", "凭证已被另一请求使用。"},
	ActivityNotOpen:       {403, "ACTIVITY_NOT_OPEN", StatusRejected, ActionWait, true, "The sale has not opened yet.", "活动尚未开始。"},
	ActivityEnded:         {403, "ACTIVITY_ENDED", StatusRejected, ActionStop, false, "The sale has ended.", "活动已结束。"},
	Forbidden:             {403, "FORBIDDEN", StatusRejected, ActionStop, false, "Your role does not allow this.", "权限不足。"},
	NotFound:              {404, "NOT_FOUND", StatusRejected, ActionStop, false, "There is no such thing.", "未找到。"},
	MethodNotAllowed:      {405, "METHOD_NOT_ALLOWED", StatusRejected, ActionFixRequest, false, "This method is not allowed here.", "不支持该方法。"},
	BodyTimeout:           {408, "BODY_TIMEOUT", StatusRejected, ActionFixRequest, false, "The body did not arrive in time.", "请求体超时。"},
	LengthRequired:        {411, "LENGTH_REQUIRED", StatusRejected, ActionFixRequest, false, "Content-Length is required.", "需要 Content-Length。"},
	BodyTooLarge:          {413, "BODY_TOO_LARGE", StatusRejected, ActionFixRequest, false, "The body is too large.", "请求体过大。"},
	UnsupportedMediaType:  {415, "UNSUPPORTED_MEDIA_TYPE", StatusRejected, ActionFixRequest, false, "Send application/json without a content encoding.", "请使用 application/json 且不压缩。"},
	ExpectationFailed:     {417, "EXPECTATION_FAILED", StatusRejected, ActionFixRequest, false, "Expect is not supported.", "不支持 Expect。"},
	AlreadyPurchased:      {409, "ALREADY_PURCHASED", StatusRejected, ActionQuery, false, "You already hold a reservation or an order.", "您已有预留或订单。"},
	OrderStateConflict:    {409, "ORDER_STATE_CONFLICT", StatusRejected, ActionQuery, false, "The order is no longer in a state that allows this.", "订单当前状态不允许此操作。"},
	RateLimited:           {429, "RATE_LIMITED", StatusRateLimited, ActionRetrySameID, true, "You are too fast.", "操作过于频繁。"},
	Overloaded:            {503, "SYSTEM_OVERLOADED", StatusOverloaded, ActionRetrySameID, true, "We are full right now.", "系统繁忙，请稍后重试。"},
	OverloadedQueueOnly:   {503, "SYSTEM_OVERLOADED", StatusOverloaded, ActionRequeue, true, "We are full; go back to the queue.", "系统繁忙，请回到排队页。"},
	OverloadedClosed:      {503, "SYSTEM_OVERLOADED", StatusOverloaded, ActionStop, false, "The sale is paused.", "活动暂停。"},
	DependencyUnavailable: {503, "DEPENDENCY_UNAVAILABLE", StatusUnknown, ActionQueryThenRetrySameID, true, "The result is not known; query, then retry with the same id.", "结果未知，请先查询再用同一 id 重试。"},
	PollQueued:            {200, "SECKILL_QUEUED", StatusQueued, ActionPoll, false, "Reserved. The order is being created.", "已保留，订单正在创建。"},
	PollOrderCreated:      {200, "ORDER_CREATED", StatusOrderCreated, ActionPay, false, "Your order is created; pay to keep it.", "订单已创建，请支付。"},
	PollOrderPaid:         {200, "ORDER_PAID", StatusPaid, ActionStop, false, "Your order is paid.", "订单已支付。"},
	PollOrderCancelled:    {200, "ORDER_CANCELLED", StatusCancelled, ActionStop, false, "Your order was cancelled.", "订单已取消。"},
	PollNoCapacity:        {200, "NO_CAPACITY", StatusFailed, ActionStop, false, "No unit was left for this reservation.", "库存不足，未能下单。"},
	PollDuplicate:         {200, "DUPLICATE", StatusFailed, ActionQuery, false, "You already have an order.", "您已有订单。"},
}
