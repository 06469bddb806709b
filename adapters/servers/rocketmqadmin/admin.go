// Package rocketmqadmin makes topics and consumer groups on a RocketMQ broker and says whether it is ready, in
// milliseconds and without a JVM. It is for set-up and tests: the Go client's own CreateTopic discards the broker's
// answer, and the client has no call for groups at all.
//
// It speaks RocketMQ's remoting protocol with JSON headers, one connection per request. Every function takes the
// address of a name server ("host:port"; of several, divided by commas or semicolons, the first) and ends within
// seconds whatever the other side does.
package rocketmqadmin

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Request codes of the protocol.
const (
	updateTopic        = 17
	updateBrokerConfig = 25
	brokerConfig       = 26
	topicRoute         = 105
	clusterInfo        = 106
	updateGroup        = 200
)

const (
	callTimeout  = 5 * time.Second
	readyTimeout = 500 * time.Millisecond // asked in a loop, so a hung server must not hold the loop
	maxAnswer    = 16 << 20               // bytes; longer than any answer to the requests above
)

// CreateTopic creates the topic, or changes its number of queues, and returns when the name server knows the route to
// it: a consumer fails to start on a topic without one.
func CreateTopic(addr, topic string, queues int) error {
	broker, err := master(addr, callTimeout)
	if err != nil {
		return err
	}
	return createTopic(addr, broker, topic, queues)
}

// CreateGroup creates the consumer group with its retry topic (%RETRY%group) and its dead-letter topic (%DLQ%group).
// Without the retry topic the first retry of a message comes only after 39 s.
func CreateGroup(addr, group string) error {
	broker, err := master(addr, callTimeout)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{
		"groupName": group, "consumeEnable": true, "consumeFromMinEnable": true, "consumeBroadcastEnable": true,
		"retryQueueNums": 1, "retryMaxTimes": 16, "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1,
		"notifyConsumerIdsChangedEnable": true,
	})
	if err != nil {
		return err
	}
	if _, err := call(broker, updateGroup, nil, body, callTimeout); err != nil {
		return fmt.Errorf("create group %s: %w", group, err)
	}
	for _, prefix := range []string{"%RETRY%", "%DLQ%"} {
		if err := createTopic(addr, broker, prefix+group, 1); err != nil {
			return err
		}
	}
	return nil
}

// NamesrvReady says whether the name server answers.
func NamesrvReady(addr string) error {
	_, err := call(first(addr), clusterInfo, nil, nil, readyTimeout)
	return err
}

// Ready says whether the name server knows a broker and that broker answers.
func Ready(addr string) error {
	broker, err := master(addr, readyTimeout)
	if err != nil {
		return err
	}
	_, err = call(broker, brokerConfig, nil, nil, readyTimeout)
	return err
}

// Announce asks the broker at this address of its own to register itself and its topics with its name servers. A fresh
// broker that registers before its connection to a name server stands is unknown there until its next turn, 10 s later.
func Announce(broker string) error {
	// the one setting whose change makes a broker register in full; 6, read and write, is what it has already
	_, err := call(broker, updateBrokerConfig, nil, []byte("brokerPermission=6\n"), readyTimeout)
	return err
}

func createTopic(addr, broker, topic string, queues int) error {
	n := strconv.Itoa(queues)
	_, err := call(broker, updateTopic, map[string]string{
		"topic": topic, "defaultTopic": "TBW102", "readQueueNums": n, "writeQueueNums": n,
		"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
	}, nil, callTimeout)
	if err != nil {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	for end := time.Now().Add(callTimeout); ; time.Sleep(20 * time.Millisecond) {
		body, err := call(first(addr), topicRoute, map[string]string{"topic": topic}, nil, callTimeout)
		if err == nil && strings.Contains(string(body), "writeQueueNums") {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("create topic %s: the name server has no route to it: %w", topic, err)
		}
	}
}

// The answer is not quite JSON: its broker ids are bare numbers used as keys. Id 0 is the master.
var masterAddress = regexp.MustCompile(`[{,]\s*"?0"?\s*:\s*"([^"]+)"`)

func master(addr string, timeout time.Duration) (string, error) {
	body, err := call(first(addr), clusterInfo, nil, nil, timeout)
	if err != nil {
		return "", err
	}
	m := masterAddress.FindSubmatch(body)
	if m == nil {
		return "", errors.New("no broker is registered with the name server")
	}
	return string(m[1]), nil
}

func first(addr string) string {
	if i := strings.IndexAny(addr, ",;"); i >= 0 {
		return addr[:i]
	}
	return addr
}

type header struct {
	Code      int               `json:"code"`
	Language  string            `json:"language"`
	Version   int               `json:"version"`
	Opaque    int               `json:"opaque"`
	Flag      int               `json:"flag"`
	Remark    string            `json:"remark"`
	ExtFields map[string]string `json:"extFields"`
	Ser       string            `json:"serializeTypeCurrentRPC"`
}

// call sends one request on a connection of its own. A frame is: length of the rest, length of the header (its top byte
// names the encoding, 0 = JSON), header, body.
func call(addr string, code int, fields map[string]string, body []byte, timeout time.Duration) ([]byte, error) {
	conn, err := net.DialTimeout("tcp", addr, timeout)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	if fields == nil {
		fields = map[string]string{}
	}
	head, err := json.Marshal(header{Code: code, Language: "GO", Version: 401, Opaque: 1, ExtFields: fields, Ser: "JSON"})
	if err != nil {
		return nil, err
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(head)+len(body)))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(head)))
	frame = append(append(frame, head...), body...)
	if _, err := conn.Write(frame); err != nil {
		return nil, err
	}

	var lengths [8]byte
	if _, err := io.ReadFull(conn, lengths[:]); err != nil {
		return nil, err
	}
	total := binary.BigEndian.Uint32(lengths[:4])
	headLen := binary.BigEndian.Uint32(lengths[4:]) & 0xffffff
	if total < 4 || total > maxAnswer || headLen > total-4 {
		return nil, fmt.Errorf("%s does not speak RocketMQ", addr)
	}
	answer := make([]byte, total-4)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return nil, err
	}
	var h header
	if err := json.Unmarshal(answer[:headLen], &h); err != nil {
		return nil, fmt.Errorf("%s: header of the answer: %w", addr, err)
	}
	if h.Code != 0 {
		return nil, fmt.Errorf("%s: code %d: %s", addr, h.Code, h.Remark)
	}
	return answer[headLen:], nil
}
