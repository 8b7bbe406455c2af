"use strict";
{
    const line = document.getElementById("line");
    const shown = new Map();
    // A part with the focus or a text selection is not replaced until the user has finished.
    const inUse = (part) => {
        const selection = document.getSelection();
        return part.contains(document.activeElement) || (!selection.isCollapsed && part.contains(selection.anchorNode));
    };
    const source = new EventSource("/events");
    source.addEventListener("state", ({ data }) => {
        line.textContent = "live";
        for (const [id, html] of Object.entries(JSON.parse(data))) {
            const part = document.getElementById(id);
            if (part && shown.get(id) !== html && !inUse(part)) {
                // Rendered by the server, where everything that is not its own is escaped.
                part.innerHTML = html;
                shown.set(id, html);
            }
        }
    });
    source.onerror = () => {
        line.textContent = source.readyState === EventSource.CLOSED ? "not live: reload the page" : "the line is down, trying again";
    };
}
