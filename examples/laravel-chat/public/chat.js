// The page works without this file. With it, new messages appear and sending does not reload the page. If the server has channels, messages
// arrive at once and other visitors are shown; otherwise the page polls.

const list = document.querySelector("#messages");
const form = document.querySelector("#say");
const error = form.querySelector(".error");
const main = document.querySelector("main");
const shown = Number(list.dataset.last);
let last = shown;

function show(message) {
    if (message.id <= shown || list.querySelector(`[data-id="${message.id}"]`)) return;
    last = Math.max(last, message.id);
    list.querySelector(".nobody")?.remove();

    const author = document.createElement("span");
    author.className = "author";
    author.textContent = message.author;
    const time = document.createElement("time");
    time.dateTime = message.said_at;
    time.textContent = clock(message.said_at);
    const text = document.createElement("p");
    text.textContent = message.text;

    const item = document.createElement("li");
    item.dataset.id = message.id;
    item.className = message.author === form.author.value ? "own new" : "new";
    item.append(author, " ", time, text);
    // News come by two ways, and one may overtake the other.
    const later = [...list.children].find((other) => Number(other.dataset.id) > message.id);
    list.insertBefore(item, later ?? null);
}

function clock(iso) {
    return new Date(iso).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

function scrollToEnd() {
    main.scrollTop = main.scrollHeight;
}

async function look() {
    const wasAtEnd = main.scrollHeight - main.scrollTop - main.clientHeight < 40;
    const answer = await fetch(`/messages?after=${last}`, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    const { messages } = await answer.json();
    messages.forEach(show);
    if (messages.length && wasAtEnd) scrollToEnd();
}

async function keepLooking() {
    // A hidden page polls less often, and so does a page without a reachable server.
    let pause = 1500;
    try {
        await look();
        if (document.hidden) pause = 15000;
    } catch {
        pause = 5000;
    }
    setTimeout(keepLooking, pause);
}

// Channels: messages arrive at once, and other visitors are shown. `echo` stays null if the server has no channels.

const channels = document.querySelector('meta[name="channels"]');
const here = document.querySelector("#here");
const status = document.querySelector("#status");
let echo = null;
let visitor = channels?.dataset.visitor || null;
let room = null;

async function connect() {
    const { resume } = await import("/vendor/resume.js");
    const token = document.querySelector('meta[name="csrf-token"]').content;
    const port = Number(location.port) || (location.protocol === "https:" ? 443 : 80);
    const Echo = window.Echo.default ?? window.Echo;
    echo = new Echo({
        broadcaster: "pusher",
        key: channels.content,
        wsHost: location.hostname,
        wsPort: port,
        wssPort: port,
        forceTLS: location.protocol === "https:",
        enabledTransports: ["ws", "wss"],
        cluster: "",
        csrfToken: token,
        authEndpoint: "/broadcasting/auth",
    });
    // Messages missed while the connection was broken arrive after it is back; older ones are requested.
    resume(echo, { onGap: look });
    echo.connector.pusher.connection.bind("state_change", ({ current }) => {
        document.body.dataset.connection = current;
        status.textContent = current === "connected" ? "" : "The line is down. Waiting for it to come back.";
    });
    echo.channel("fireside").listen(".said", ({ message }) => arrive(message));
    enter();
}

/** A visitor with a name is shown to others, who can wave. */
function enter() {
    if (echo === null || !visitor || room !== null) return;
    room = echo
        .join("room")
        .here(showMembers)
        .joining(showMembers)
        .leaving(showMembers)
        .listenForWhisper("typing", ({ name }) => say(`${name} is typing …`));
    echo.private(`visitor.${visitor}`).listen(".waved", ({ from }) => say(`${from} waves at you.`));
    form.text.addEventListener("input", () => {
        if (Date.now() - whispered > 2000) {
            whispered = Date.now();
            room.whisper("typing", { name: form.author.value });
        }
    });
}

let whispered = 0;
let quiet = null;

function say(text) {
    status.textContent = text;
    clearTimeout(quiet);
    quiet = setTimeout(() => (status.textContent = ""), 4000);
}

function showMembers() {
    const info = echo.connector.pusher.channel("presence-room").members.members;
    const ids = Object.keys(info);
    here.hidden = ids.length === 0;
    here.replaceChildren(
        ...ids.map((id) => {
            const item = document.createElement("li");
            const wave = document.createElement("button");
            wave.type = "button";
            wave.textContent = info[id].name;
            wave.disabled = id === visitor;
            wave.title = wave.disabled ? "You" : `Wave at ${info[id].name}`;
            wave.addEventListener("click", () => waveAt(id));
            item.append(wave);
            return item;
        }),
    );
}

async function waveAt(to) {
    const body = new FormData(form);
    body.set("to", to);
    await fetch("/waves", { method: "POST", headers: { Accept: "application/json" }, body });
}

/** A message from the server. */
function arrive(message) {
    const wasAtEnd = main.scrollHeight - main.scrollTop - main.clientHeight < 40;
    show(message);
    if (wasAtEnd) scrollToEnd();
}

form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("button");
    button.disabled = true;
    error.textContent = "";
    try {
        const answer = await fetch(form.action, {
            method: "POST",
            headers: { Accept: "application/json", ...(echo?.socketId() ? { "X-Socket-ID": echo.socketId() } : {}) },
            body: new FormData(form),
        });
        if (answer.status === 419) return location.reload();
        const said = await answer.json();
        if (!answer.ok) throw new Error(said.message);
        form.text.value = "";
        if (echo) show(said.message);
        else await look();
        visitor = said.visitor;
        enter();
        scrollToEnd();
    } catch (problem) {
        error.textContent = problem.message || "That did not arrive. Try again?";
    } finally {
        button.disabled = false;
        form.text.focus();
    }
});

list.querySelectorAll("time").forEach((time) => (time.textContent = clock(time.dateTime)));
scrollToEnd();
if (channels && window.Echo) connect();
else keepLooking();
