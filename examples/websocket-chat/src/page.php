<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Chat</title>
<style>
    body { font: 1rem/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 40rem; padding: 0 1rem }
    #messages { list-style: none; padding: 0; min-height: 12rem }
    form { display: flex; gap: .5rem }
    input[name=text] { flex: 1 }
    .quiet { color: #666 }
</style>
<h1>Chat</h1>
<p class="quiet">Here: <span id="here"></span>. <span id="state">not connected</span></p>
<ul id="messages"></ul>
<form id="enter"><input name="name" placeholder="Your name" maxlength="40" required> <button>Enter</button></form>
<form id="say" hidden><input name="text" autocomplete="off" placeholder="Say something"> <button>Send</button></form>
<script>
    const $ = (selector) => document.querySelector(selector);
    let socket, name, wait = 500;

    function connect() {
        const scheme = location.protocol === 'https:' ? 'wss:' : 'ws:';
        socket = new WebSocket(`${scheme}//${location.host}/chat?name=${encodeURIComponent(name)}`);
        socket.onopen = () => {
            wait = 500;
            $('#enter').hidden = true;
            $('#say').hidden = false;
            $('#state').textContent = 'connected';
        };
        socket.onmessage = ({ data }) => {
            const message = JSON.parse(data);
            if (message.kind === 'here') {
                $('#here').textContent = message.names.join(', ');
            } else {
                const line = document.createElement('li');
                line.textContent = message.kind === 'you' ? `You are ${message.name}` : `${message.name}: ${message.text}`;
                $('#messages').append(line);
            }
        };
        socket.onclose = ({ code, reason }) => {
            $('#state').textContent = `closed ${code} ${reason}`;
            if (code !== 4000) {
                // Also when the server is replaced (1001): the next connection reaches its successor.
                setTimeout(connect, wait);
                wait = Math.min(wait * 2, 10000);
            }
        };
    }

    $('#enter').onsubmit = (event) => {
        event.preventDefault();
        name = event.target.elements.name.value;
        connect();
    };
    $('#say').onsubmit = (event) => {
        event.preventDefault();
        socket.send(event.target.elements.text.value);
        event.target.reset();
    };
</script>
</html>
