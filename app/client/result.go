package client

import (
	"context"
	"net/http"
	"time"
)

// Order is one's own order.
type Order struct {
	ID            string    `json:"order_id"`
	ReservationID string    `json:"reservation_id"`
	ActivityID    string    `json:"activity_id"`
	SKUID         string    `json:"sku_id"`
	Quantity      int64     `json:"quantity"`
	Status        string    `json:"status"`
	CreatedAt     time.Time `json:"created_at"`
	PayBefore     time.Time `json:"pay_before"`
}

// Request reads the current result of one's own request. *Refused with NOT_FOUND: nothing was reserved.
func (c *Client) Request(ctx context.Context, p Person, activityID, skuID, requestID string) (Answer, error) {
	x, err := c.call(ctx, p, request{
		call: CallRequest, method: http.MethodGet, requestID: requestID,
		path: "/v1/requests/" + requestID + "?activity_id=" + activityID + "&sku_id=" + skuID,
	})
	if err != nil {
		return Answer{}, err
	}
	return decodeAnswer(x)
}

// Poll asks until the result is final: an order, or why there is none. It asks when the answers say, and less
// and less often: an order that takes long is not made faster by questions.
func (c *Client) Poll(ctx context.Context, p Person, activityID, skuID, requestID string, first Answer) (Answer, error) {
	a := first
	for n := 0; !a.Final(); n++ {
		pause := max(time.Duration(a.NextPollAfterMS)*time.Millisecond, shortestPoll)
		if err := c.config.Sleep(ctx, min(pause*time.Duration(4+n)/4, maxPoll)); err != nil {
			return a, err
		}
		next, err := c.Request(ctx, p, activityID, skuID, requestID)
		if err != nil {
			return a, err
		}
		a = next
	}
	return a, nil
}

// Order reads one's own order.
func (c *Client) Order(ctx context.Context, p Person, orderID string) (Order, error) {
	var o Order
	err := c.get(ctx, p, CallOrder, "/v1/orders/"+orderID, &o)
	return o, err
}

// Cancel cancels one's own unpaid order; cancelling twice is the same as once.
func (c *Client) Cancel(ctx context.Context, p Person, orderID string) (Order, error) {
	var o Order
	x, err := c.call(ctx, p, request{call: CallCancel, method: http.MethodPost, path: "/v1/orders/" + orderID + "/cancel"})
	if err != nil {
		return o, err
	}
	return o, decode(x, &o)
}
