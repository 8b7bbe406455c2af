// The page works without this file; with it messages appear by themselves and sending does not reload the page.

const list = document.querySelector("#messages");
const form = document.querySelector("#say");
const error = form.querySelector(".error");
const room = document.querySelector("main");
let last = Number(list.dataset.last);

function show(message) {
    if (message.id <= last) return;
    last = message.id;
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
    item.className = message.author === form.author.value ? "own new" : "new";
    item.append(author, " ", time, text);
    list.append(item);
}

function clock(iso) {
    return new Date(iso).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

function scrollToEnd() {
    room.scrollTop = room.scrollHeight;
}

async function look() {
    const wasAtEnd = room.scrollHeight - room.scrollTop - room.clientHeight < 40;
    const answer = await fetch(`/messages?after=${last}`, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    const { messages } = await answer.json();
    messages.forEach(show);
    if (messages.length && wasAtEnd) scrollToEnd();
}

async function keepLooking() {
    // A page nobody looks at asks less often, and so does one whose server is away.
    let pause = 1500;
    try {
        await look();
        if (document.hidden) pause = 15000;
    } catch {
        pause = 5000;
    }
    setTimeout(keepLooking, pause);
}

form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("button");
    button.disabled = true;
    error.textContent = "";
    try {
        const answer = await fetch(form.action, {
            method: "POST",
            headers: { Accept: "application/json" },
            body: new FormData(form),
        });
        if (answer.status === 419) return location.reload();
        const said = await answer.json();
        if (!answer.ok) throw new Error(said.message);
        form.text.value = "";
        await look();
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
keepLooking();
