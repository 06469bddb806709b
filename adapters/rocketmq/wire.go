package rocketmq

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the protocol's signature
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-io/sluice/app/admission"
)

// Request codes of the remoting protocol that the client has no call for.
const (
	codeConsumerOffset = 14
	codeMaxOffset      = 30
	codeTopicRoute     = 105

	answerTopicMissing  = 17
	answerOffsetMissing = 22
)

const (
	wireTimeout = 2 * time.Second // of one request, unless the context ends sooner
	maxAnswer   = 1 << 20         // bytes of one answer; a route has a few hundred
)

// wire asks name servers and brokers what the client cannot: routes without side
// effects, and offsets. It reads only. One connection an address is kept: that it
// breaks is also how a restart of a broker shows, however quick.
type wire struct {
	config Config
	mu     sync.Mutex
	conns  map[string]*wireConn // guarded by mu; as many as there are brokers and name servers
	closed bool                 // guarded by mu
}

type wireConn struct {
	mu     sync.Mutex // one request at a time
	conn   net.Conn   // guarded by mu; nil before the first request and after a fault
	opaque int        // guarded by mu
}

func newWire(c Config) *wire { return &wire{config: c, conns: make(map[string]*wireConn)} }

// queueID is one queue of a topic.
type queueID struct {
	broker string // address of its master
	id     int
}

// route is where a topic lives.
type route struct {
	queues  []queueID
	brokers map[string]string // name -> address of the master
}

// refusal is an answer that is no success.
type refusal struct {
	code   int
	remark string
}

func (r refusal) Error() string { return fmt.Sprintf("code %d: %.200s", r.code, r.remark) }

// route asks the name servers in turn. admission.ErrNotFound: there is no such topic.
func (w *wire) route(ctx context.Context, topic string) (route, error) {
	var errs []error
	for _, ns := range w.config.NameServers {
		_, body, err := w.call(ctx, ns, codeTopicRoute, map[string]string{"topic": topic, "acceptStandardJsonOnly": "true"})
		if err == nil {
			return parseRoute(topic, body)
		}
		var r refusal
		if errors.As(err, &r) && r.code == answerTopicMissing {
			return route{}, fmt.Errorf("rocketmq.topic %s, which must exist: %w", topic, admission.ErrNotFound)
		}
		errs = append(errs, err)
	}
	return route{}, fmt.Errorf("%w: rocketmq.name_servers %s: route of topic %s: %w", admission.ErrUnavailable, strings.Join(w.config.NameServers, ","), topic, errors.Join(errs...))
}

// bareKey finds the broker ids that an older name server writes as bare numbers.
var bareKey = regexp.MustCompile(`([{,]\s*)(\d+)\s*:`)

func parseRoute(topic string, body []byte) (route, error) {
	var doc struct {
		Brokers []struct {
			Name  string            `json:"brokerName"`
			Addrs map[string]string `json:"brokerAddrs"`
		} `json:"brokerDatas"`
		Queues []struct {
			Broker string `json:"brokerName"`
			Read   int    `json:"readQueueNums"`
			Write  int    `json:"writeQueueNums"`
		} `json:"queueDatas"`
	}
	if json.Unmarshal(body, &doc) != nil {
		if err := json.Unmarshal(bareKey.ReplaceAll(body, []byte(`$1"$2":`)), &doc); err != nil {
			return route{}, fmt.Errorf("%w: route of topic %s: %w", admission.ErrUnavailable, topic, err)
		}
	}
	r := route{brokers: make(map[string]string)}
	for _, b := range doc.Brokers {
		if addr := b.Addrs["0"]; addr != "" {
			r.brokers[b.Name] = addr
		}
	}
	for _, q := range doc.Queues {
		addr, ok := r.brokers[q.Broker]
		if !ok {
			return route{}, fmt.Errorf("%w: topic %s: broker %s has no master", admission.ErrUnavailable, topic, q.Broker)
		}
		for i := range min(max(q.Read, q.Write), 1024) {
			r.queues = append(r.queues, queueID{addr, i})
		}
	}
	if len(r.queues) == 0 {
		return route{}, fmt.Errorf("topic %s has no queue: %w", topic, admission.ErrNotFound)
	}
	return r, nil
}

// maxOffset is one more than the queue's last message.
func (w *wire) maxOffset(ctx context.Context, topic string, q queueID) (int64, error) {
	return w.offset(ctx, q.broker, codeMaxOffset, map[string]string{"topic": topic, "queueId": strconv.Itoa(q.id)})
}

// consumerOffset is one more than the last message that the group has acknowledged
// with all before it; 0 when it has acknowledged none.
func (w *wire) consumerOffset(ctx context.Context, topic string, q queueID) (int64, error) {
	n, err := w.offset(ctx, q.broker, codeConsumerOffset, map[string]string{
		"consumerGroup": w.config.Group, "topic": topic, "queueId": strconv.Itoa(q.id),
	})
	var r refusal
	if errors.As(err, &r) && r.code == answerOffsetMissing {
		return 0, nil
	}
	return n, err
}

func (w *wire) offset(ctx context.Context, addr string, code int, fields map[string]string) (int64, error) {
	answer, _, err := w.call(ctx, addr, code, fields)
	if err != nil {
		return 0, fmt.Errorf("%w: broker %s, of rocketmq.name_servers: %w", admission.ErrUnavailable, addr, err)
	}
	n, err := strconv.ParseInt(answer["offset"], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: broker %s: offset: %w", admission.ErrUnavailable, addr, err)
	}
	return n, nil
}

// close ends every connection; requests fail from then on.
func (w *wire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, c := range w.conns {
		c.mu.Lock()
		c.drop()
		c.mu.Unlock()
	}
}

var errWireClosed = errors.New("closed")

func (w *wire) conn(addr string) (*wireConn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, errWireClosed
	}
	c := w.conns[addr]
	if c == nil {
		c = new(wireConn)
		w.conns[addr] = c
	}
	return c, nil
}

func (w *wire) call(ctx context.Context, addr string, code int, fields map[string]string) (map[string]string, []byte, error) {
	c, err := w.conn(addr)
	if err != nil {
		return nil, nil, err
	}
	deadline := time.Now().Add(wireTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	fields = w.sign(fields)
	answer, body, err := c.roundTrip(ctx, addr, code, fields, deadline)
	var r refusal
	if err != nil && !errors.As(err, &r) {
		c.drop() // what is left on it belongs to nobody
		err = sourceless(err)
	}
	return answer, body, err
}

// sourceless leaves our own port out of an error's text: the next attempt has another one,
// and what failed is the same.
func sourceless(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		op.Source = nil // it was made for this call
	}
	return err
}

// sign adds what WithCredentials adds: an HMAC over the field values in order of their names.
func (w *wire) sign(fields map[string]string) map[string]string {
	if w.config.AccessKey == "" {
		return fields
	}
	fields = maps.Clone(fields)
	fields["AccessKey"] = w.config.AccessKey
	mac := hmac.New(sha1.New, []byte(w.config.SecretKey))
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		mac.Write([]byte(fields[k]))
	}
	fields["Signature"] = base64.StdEncoding.EncodeToString(mac.Sum(nil))
	return fields
}

type wireHeader struct {
	Code      int               `json:"code"`
	Language  string            `json:"language"`
	Version   int               `json:"version"`
	Opaque    int               `json:"opaque"`
	Flag      int               `json:"flag"`
	Remark    string            `json:"remark"`
	ExtFields map[string]string `json:"extFields"`
	Ser       string            `json:"serializeTypeCurrentRPC"`
}

// roundTrip sends one frame and reads one: length of the rest, length of the header
// (its top byte names the encoding, 0 = JSON), header, body.
func (c *wireConn) roundTrip(ctx context.Context, addr string, code int, fields map[string]string, deadline time.Time) (map[string]string, []byte, error) {
	if c.conn == nil {
		d := net.Dialer{Deadline: deadline}
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, nil, err
		}
		c.conn = conn
	}
	if err := c.conn.SetDeadline(deadline); err != nil {
		return nil, nil, err
	}
	c.opaque++
	head, err := json.Marshal(wireHeader{Code: code, Language: "GO", Version: 401, Opaque: c.opaque, ExtFields: fields, Ser: "JSON"})
	if err != nil {
		return nil, nil, err
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 8+len(head)), uint32(4+len(head)))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(head)))
	if _, err := c.conn.Write(append(frame, head...)); err != nil {
		return nil, nil, err
	}
	return c.answer()
}

func (c *wireConn) answer() (map[string]string, []byte, error) {
	var lengths [8]byte
	if _, err := io.ReadFull(c.conn, lengths[:]); err != nil {
		return nil, nil, err
	}
	total := binary.BigEndian.Uint32(lengths[:4])
	headLen := binary.BigEndian.Uint32(lengths[4:]) & 0xffffff
	if total < 4 || total > maxAnswer || headLen > total-4 {
		return nil, nil, errors.New("not an answer of RocketMQ")
	}
	rest := make([]byte, total-4)
	if _, err := io.ReadFull(c.conn, rest); err != nil {
		return nil, nil, err
	}
	var h wireHeader
	d := json.NewDecoder(bytes.NewReader(rest[:headLen]))
	if err := d.Decode(&h); err != nil {
		return nil, nil, fmt.Errorf("header: %w", err)
	}
	if h.Opaque != c.opaque {
		return nil, nil, fmt.Errorf("answer to request %d instead of %d", h.Opaque, c.opaque)
	}
	if h.Code != 0 {
		return nil, nil, refusal{h.Code, h.Remark}
	}
	return h.ExtFields, rest[headLen:], nil
}

// drop closes the connection. mu is held.
func (c *wireConn) drop() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}
