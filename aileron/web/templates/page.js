
"use strict";
(() => {
  const DEAD_MS = 400; // after something changed, so that nothing new is clicked by accident
  const body = document.body;
  const live = document.getElementById("live");
  const of = body.dataset.of; // the question that is shown, or several with commas between; empty for the queue
  const isSeveral = of !== undefined && of.includes(",");
  const here = of === undefined ? location.pathname : `/approvals${of && (isSeveral ? "/together?of=" : "/") + of}`;
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
    main.append(put("h1", title), note, put("a", "Load this page again", { href: here }));
    body.replaceChildren(main);
  };
  const tick = () => {
    if (isBlank) return;
    for (const one of document.querySelectorAll("[data-until]")) {
      const ms = Number(one.dataset.until) - Date.now();
      one.textContent = ms > 0 ? `${span(ms)} left` : "time is up";
    }
    if (left) {
      left.textContent = span(endsAt - Date.now());
      if (Date.now() >= endsAt) blank("Locked", "The time of this page is over. What it showed has been removed.");
    }
  };
  tick();
  setInterval(tick, 1000);
  const locked = () => blank("Locked", "This page was locked. What it showed has been removed. Load it again to see why.");

  if (body.dataset.news === undefined) return;
  const LOOK_MS = 10000; // of a tab that nobody sees: for its title alone
  const isSecond = document.querySelector(".second") !== null;
  let known = body.dataset.news;
  let count = body.dataset.waiting;
  let waiting = null;
  const say = (text, word, href) => { // at the bottom, above the buttons: it grows upwards, and they stay where they are
    live.textContent = text;
    if (href) live.append(" ", Object.assign(document.createElement("a"), { textContent: word, href }));
  };
  const counted = (said) => {
    count = String(said);
    document.title = `${said ? `(${said}) ` : ""}${document.title.replace(/^\(\d+\) /, "")}`;
  };
  const load = async (path) => { // the page as it would be now; null where there is none, or it is locked
    const answer = await fetch(path, { credentials: "same-origin" });
    if (!answer.ok) return null;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!fresh.querySelector("[data-news]")) { locked(); return null; }
    return fresh;
  };

  const showQueue = async () => {
    const fresh = await load("/approvals");
    if (!fresh) return;
    const arrived = document.getElementById("arrived");
    let more = 0;
    for (const row of fresh.querySelectorAll(".queue li[data-id]")) {
      const mine = document.querySelector(`.queue li[data-id="${CSS.escape(row.dataset.id)}"]`);
      if (!mine) {
        arrived.querySelector("ol").append(document.adoptNode(row)); // below everything: nothing moves
        arrived.hidden = false;
        more += 1;
      } else if (mine.dataset.status !== row.dataset.status) {
        mine.dataset.status = row.dataset.status;
        mine.className = row.className;
        mine.querySelector(".state").textContent = row.querySelector(".state").textContent.trim();
      }
    }
    tick();
    rest();
    const empty = document.getElementById("empty");
    if (more && empty) empty.textContent = "What is new stands below.";
    if (more) say(`${more} new, at the end of this page.`, "Show", "#arrived");
  };
  const off = (text) => { // what is shown can be decided no more; nothing takes the place of its buttons
    isOver = true;
    body.classList.add("dead");
    for (const button of document.querySelectorAll("[data-guard] button")) button.disabled = true;
    say(text, "Reload", here);
  };
  const showQuestion = async () => {
    const decide = document.getElementById("decide");
    if (decide && (isSecond || isSeveral)) { // what is confirmed, or compared, is not exchanged while somebody reads it
      off(isSeveral ? "Something about these requests has changed. Look at them again."
        : "Something about this request has changed. Look at it again.");
      return;
    }
    if (!decide) { location.reload(); return; } // nothing here decides: it may move
    const fresh = await load(location.pathname + location.search);
    if (!fresh) return;
    rest();
    const now = fresh.getElementById("decide");
    if (!now) {
      document.getElementById("main").replaceWith(fresh.getElementById("main"));
      document.title = fresh.title;
      scrollTo(0, 0);
      off(`${document.querySelector(".verdict").textContent}. The buttons here do nothing now.`);
      return;
    }
    const wasOpen = document.querySelector(".proof[open]") !== null;
    for (const button of now.querySelectorAll("[data-passkey]")) button.hidden = body.dataset.passkeys === undefined;
    decide.replaceWith(now); // not what is typed beside it: a reason, a question
    for (const id of ["card", "read"]) document.getElementById(id).replaceWith(fresh.getElementById(id));
    document.querySelector(".proof").open = wasOpen;
    tick();
    say("This page has changed. Look again before you decide.");
  };
  const ask = async (isSeen) => { // what is new: waited for, or, where nobody looks, at once
    const fields = { of, known, waiting: count, ...(isSeen ? {} : { now: "1" }) };
    waiting = new AbortController();
    const answer = await fetch(`/approvals/news?${new URLSearchParams(fields)}`,
      { credentials: "same-origin", signal: waiting.signal });
    if (answer.status === 401 || answer.status === 403) { locked(); return; }
    if (!answer.ok) throw new Error(String(answer.status));
    const told = await answer.json();
    counted(told.waiting);
    if (isSeen && told.news !== known) {
      known = told.news;
      if (of) await showQuestion(); else await showQueue();
    }
  };
  const asked = async (isSeen) => {
    try {
      await ask(isSeen);
    } catch (error) {
      if (error.name !== "AbortError") {
        blank("The daemon does not answer", "Nothing can be decided, and what was shown has been removed. While the daemon does not " +
          "run, any program can serve a page at this address. Before you type your passphrase here again, check that it runs:", "aileron status");
      }
      return false;
    }
    return !isBlank;
  };
  const follow = async () => {
    while (document.visibilityState === "visible" && await asked(true)); // a browser has six connections, and may have more tabs
  };
  setInterval(() => { if (document.visibilityState !== "visible" && !isBlank) asked(false); }, LOOK_MS);
  document.addEventListener("visibilitychange", () => {
    if (isBlank) return;
    if (waiting) waiting.abort();
    if (document.visibilityState === "visible") { rest(); follow(); }
  });
  follow();
})();
