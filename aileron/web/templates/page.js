
"use strict";
(() => {
  const DEAD_MS = 400; // after something changed, so that nothing new is clicked by accident
  const body = document.body;
  const live = document.getElementById("live");
  const of = body.dataset.of; // the question that is shown; empty for the queue
  let deadUntil = 0;
  let isOver = false; // what is shown can be decided no more
  let isBlank = false;

  const rest = () => {
    deadUntil = performance.now() + DEAD_MS;
    body.classList.add("dead");
    setTimeout(() => { if (!isOver && performance.now() >= deadUntil) body.classList.remove("dead"); }, DEAD_MS + 10);
  };
  const isDead = () => isOver || performance.now() < deadUntil;
  for (const kind of ["click", "submit"]) {
    document.addEventListener(kind, (event) => {
      const place = event.target instanceof Element && event.target.closest("[data-guard]");
      if (place && isDead() && (kind === "submit" || event.target.closest("button"))) event.preventDefault();
    }, true);
  }
  rest();
  addEventListener("pageshow", rest);
  addEventListener("focus", rest); // the click that brought this window to the front was not meant for what it hit

  const span = (ms) => {
    const s = Math.max(0, Math.ceil(ms / 1000));
    const two = (n) => String(n).padStart(2, "0");
    return s >= 3600 ? `${Math.floor(s / 3600)} h ${two(Math.floor(s % 3600 / 60))} min` : `${two(Math.floor(s / 60))}:${two(s % 60)}`;
  };
  const left = document.getElementById("left");
  const endsAt = left ? Date.now() + Number(left.dataset.left) * 1000 : 0;
  const blank = (title, text, command) => { // and nothing is loaded of itself: another program may have the port by now
    if (isBlank) return;
    isBlank = isOver = true;
    document.title = `${title} · Aileron`;
    const put = (name, said, fields) => Object.assign(document.createElement(name), { textContent: said, ...fields });
    const main = put("main", "", { id: "main", className: "narrow" });
    const note = put("p", `${text} `, { className: "note alarm" });
    note.setAttribute("role", "alert");
    if (command) note.append(put("code", command));
    const href = of === undefined ? location.pathname : `/approvals${of && `/${of}`}`;
    main.append(put("h1", title), note, put("a", "Load this page again", { href }));
    body.replaceChildren(main);
  };
  const tick = () => {
    if (isBlank) return;
    for (const one of document.querySelectorAll("[data-until]")) {
      const ms = Number(one.dataset.until) - Date.now();
      one.textContent = ms > 0 ? `(${span(ms)} left)` : "(over)";
    }
    if (left) {
      left.textContent = span(endsAt - Date.now());
      if (Date.now() >= endsAt) blank("Locked", "The time of this page is over: what it showed is gone.");
    }
  };
  tick();
  setInterval(tick, 1000);
  const locked = () => blank("Locked", "This page was locked: what it showed is gone. Load it again to see why.");

  if (body.dataset.news === undefined) return;
  let known = body.dataset.news;
  let waiting = null;
  const say = (text) => { live.textContent = text; };

  const showQueue = async () => {
    const answer = await fetch("/approvals", { credentials: "same-origin" });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!fresh.querySelector("[data-news]")) { locked(); return; }
    const arrived = document.getElementById("arrived");
    let count = 0;
    for (const row of fresh.querySelectorAll(".queue li[data-id]")) {
      const mine = document.querySelector(`.queue li[data-id="${CSS.escape(row.dataset.id)}"]`);
      if (!mine) {
        arrived.querySelector("ol").append(document.adoptNode(row)); // below everything: nothing moves
        arrived.hidden = false;
        count += 1;
      } else if (mine.dataset.status !== row.dataset.status) {
        mine.dataset.status = row.dataset.status;
        mine.className = row.className;
        mine.querySelector(".state").textContent = row.querySelector(".state").textContent.trim();
      }
    }
    rest();
    if (count) say(`${count} more arrived: at the end of this page.`);
    const all = [...document.querySelectorAll(".queue li[data-status=pending_approval]")].length;
    document.title = `${all} waiting · Aileron`;
  };
  const showQuestion = (told) => {
    if (!document.querySelector("#decide")) { location.reload(); return; } // nothing here decides: it may move
    if (told.status !== "pending_approval") {
      isOver = true;
      body.classList.add("dead");
      for (const button of document.querySelectorAll("[data-guard] button")) button.disabled = true;
      say(`It is over: ${told.status.replace("_", " ")}. Load this page again to see it.`);
    } else {
      say("Something about it is new: load this page again to see it.");
    }
    rest();
  };
  const follow = async () => {
    while (document.visibilityState === "visible") { // a browser has six connections, and may have more tabs
      waiting = new AbortController();
      try {
        const answer = await fetch(`/approvals/news?of=${encodeURIComponent(of)}&known=${encodeURIComponent(known)}`,
          { credentials: "same-origin", signal: waiting.signal });
        if (answer.status === 401 || answer.status === 403) { locked(); return; }
        if (!answer.ok) throw new Error(String(answer.status));
        const told = await answer.json();
        if (told.news !== known) {
          known = told.news;
          if (of) showQuestion(told); else await showQueue();
        }
        if (isOver) return;
      } catch (error) {
        if (error.name === "AbortError") return;
        blank("The supervisor does not answer", "Nothing can be decided, and what was shown is gone. While no supervisor runs, any " +
          "program can serve a page at this address. Before you type your passphrase here again, look whether it runs:", "aileron status");
        return;
      }
    }
  };
  document.addEventListener("visibilitychange", () => {
    if (isBlank) return;
    if (document.visibilityState === "visible") { rest(); follow(); } else if (waiting) waiting.abort();
  });
  follow();
})();
