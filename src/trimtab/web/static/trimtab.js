// What pages do beyond HTML: news as they come, keys, the theme, and errors told where people look.
"use strict";
const page = (() => {
  const live = document.getElementById("live"), told = document.getElementById("told");
  const tell = (state, words) => { if (live.dataset.state !== state) { live.dataset.state = state; live.textContent = words; } };

  // News: every part that wants them asks for itself anew; charts fetch their numbers.
  let due = 0, news = null, missed = false;
  function renew() {
    document.body.dispatchEvent(new CustomEvent("news"));
    charts.load().catch(() => {});
  }
  function listen() {
    if (news && news.readyState !== EventSource.CLOSED) return;
    news = new EventSource("/changes");
    news.onopen = () => { tell("live", "live"); if (missed) renew(); missed = false; };
    news.onerror = event => {
      tell("lost", "not connected");
      missed = true;
      // A browser tries again by itself where nobody answers, but never after an answer such as a proxy's 503. What is asked
      // for anew then leads to the login where the session is over.
      if (event.target.readyState === EventSource.CLOSED) setTimeout(() => { if (event.target === news) { renew(); listen(); } }, 5000);
    };
    // What came between a page and its stream would wait for what comes next.
    news.addEventListener("now", event => {
      if (event.data !== document.body.dataset.version) renew();
      document.body.dataset.version = event.data;
    });
    // Gathered, so that a busy board costs no more than a look a second; the last of them is never lost.
    news.addEventListener("news", event => { document.body.dataset.version = event.data; due ||= setTimeout(() => { due = 0; renew(); }, 1000); });
  }
  // A browser has six connections to a host, for all of its tabs: one that nobody sees gives its own back.
  function hush() { news?.close(); news = null; missed = true; }
  const heed = () => document.hidden ? hush() : listen();
  document.addEventListener("visibilitychange", heed);
  addEventListener("pagehide", hush);
  addEventListener("pageshow", heed);
  heed();

  // Nobody's form is taken from under their hands.
  document.body.addEventListener("htmx:beforeRequest", event => {
    const trigger = event.detail.requestConfig.triggeringEvent;
    if (trigger?.type === "news" && event.detail.target.querySelector("details.act[open]")) event.preventDefault();
  });
  document.body.addEventListener("htmx:afterRequest", event => {
    const { successful, xhr, requestConfig } = event.detail;
    if (requestConfig.verb !== "post") return;
    for (const open of document.querySelectorAll("details.act[open]")) open.open = !successful;
    if (successful) { document.body.dispatchEvent(new CustomEvent("acted")); charts.load().catch(() => {}); }
    else say(xhr.responseText || "the dashboard does not answer");
    told.scrollIntoView({ block: "nearest" });
  });
  function say(words) {
    const line = document.createElement("p");
    line.className = "toast bad";
    line.textContent = words;
    told.replaceChildren(line);
  }

  // Who is somewhere by keyboard stays there when that part of the page comes anew.
  let stood = null;
  const stops = part => [...part.querySelectorAll("a[href], button, summary")];
  function leave(part) {
    const place = stops(part).indexOf(document.activeElement);
    stood = place < 0 ? null : { place, href: document.activeElement.getAttribute("href") };
  }
  function comeBack(part) {
    if (!stood) return;
    const now = stops(part), same = now.find(each => stood.href && each.getAttribute("href") === stood.href);
    (same ?? now[Math.min(stood.place, now.length - 1)])?.focus({ preventScroll: true });
    stood = null;
  }
  document.body.addEventListener("htmx:beforeSwap", event => leave(event.detail.target));
  document.body.addEventListener("htmx:afterSwap", event => comeBack(event.detail.target));

  // Theme: kept in a cookie, so that the page comes in it.
  const dark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  function turn() {
    const next = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    document.cookie = `trimtab-theme=${next}; path=/; max-age=31536000; samesite=strict`;
    charts.redraw();
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", charts.redraw);
  document.getElementById("theme").addEventListener("click", turn);

  // Keys
  const shortcuts = document.getElementById("shortcuts");
  document.getElementById("keys").addEventListener("click", () => shortcuts.showModal());
  const PAGES = { o: "/", w: "/workloads", i: "/intents", n: "/nodes", h: "/history" };
  let went = 0;
  document.addEventListener("keydown", event => {
    const form = event.key === "Escape" && document.querySelector("details.act[open]");
    if (form) { form.open = false; form.querySelector("summary").focus(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) {
      if (event.key === "Escape" && event.target.id === "q") event.target.blur();
      return;
    }
    const go = Date.now() - went < 1500 && PAGES[event.key];
    if (go) location.assign(go);
    else if (event.key === "g") went = Date.now();
    else if (event.key === "t") turn();
    else if (event.key === "?") shortcuts.showModal();
    else if (event.key === "/") {
      const search = document.getElementById("q");
      if (search) search.focus(); else location.assign("/workloads#q");
      event.preventDefault();
    } else if (event.key === "j" || event.key === "k") {
      const rows = [...document.querySelectorAll("a.row")], here = rows.indexOf(document.activeElement);
      rows[Math.max(0, Math.min(rows.length - 1, here + (event.key === "j" ? 1 : -1)))]?.focus();
    }
  });
  if (location.hash === "#q") document.getElementById("q")?.focus();
  charts.load().catch(() => {});
  return { say, leave, comeBack };
})();
