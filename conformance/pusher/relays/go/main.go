// pusher-http-go behind relays.py: one command on a line of JSON in, one answer out.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"

	pusher "github.com/pusher/pusher-http-go/v5"
)

type command struct {
	Do, Channel, Event, SocketID, User, Info, Prefix, Secret, Body string
	Channels                                                      []string
	Data                                                          any
	UserInfo                                                      map[string]string
	Headers                                                       map[string]string
	Batch                                                         []struct {
		Channel, Name string
		Data          any
	}
}

var errUnsupported = errors.New("unsupported")

// optional is nil for what was not given.
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func answer(library pusher.Client, c command) (any, error) {
	if c.Secret != "" {
		library.Secret = c.Secret
	}
	form := url.Values{"socket_id": {c.SocketID}, "channel_name": {c.Channel}}
	switch c.Do {
	case "trigger":
		return library.TriggerMultiWithParams(c.Channels, c.Event, c.Data, pusher.TriggerParams{SocketID: optional(c.SocketID), Info: optional(c.Info)})
	case "batch":
		events := []pusher.Event{}
		for _, one := range c.Batch {
			events = append(events, pusher.Event{Channel: one.Channel, Name: one.Name, Data: one.Data})
		}
		return library.TriggerBatch(events)
	case "authorize":
		var signed []byte
		var err error
		if c.User == "" {
			signed, err = library.AuthorizePrivateChannel([]byte(form.Encode()))
		} else {
			signed, err = library.AuthorizePresenceChannel([]byte(form.Encode()), pusher.MemberData{UserID: c.User, UserInfo: c.UserInfo})
		}
		return json.RawMessage(signed), err
	case "sign in":
		signed, err := library.AuthenticateUser([]byte(form.Encode()), map[string]any{"id": c.User})
		return json.RawMessage(signed), err
	case "send to user":
		return nil, library.SendToUser(c.User, c.Event, c.Data)
	case "channel":
		return library.Channel(c.Channel, pusher.ChannelParams{Info: optional(c.Info)})
	case "channels":
		return library.Channels(pusher.ChannelsParams{FilterByPrefix: optional(c.Prefix), Info: optional(c.Info)})
	case "users":
		return library.GetChannelUsers(c.Channel)
	case "webhook":
		header := http.Header{}
		for name, value := range c.Headers {
			header.Set(name, value)
		}
		return library.Webhook(header, []byte(c.Body))
	}
	return nil, errUnsupported
}

func main() {
	var app struct{ ID, Key, Secret, Host, EncryptionKey string }
	if err := json.Unmarshal([]byte(os.Getenv("RELAY")), &app); err != nil {
		panic(err)
	}
	library := pusher.Client{AppID: app.ID, Key: app.Key, Secret: app.Secret, Host: app.Host, EncryptionMasterKeyBase64: app.EncryptionKey}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			panic(err)
		}
		result, err := answer(library, c)
		reply := map[string]any{"result": result}
		if err != nil {
			reply = map[string]any{"error": err.Error(), "unsupported": err == errUnsupported}
		}
		text, err := json.Marshal(reply)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(text))
	}
}
