// Live updates, keyboard shortcuts, the theme, and error messages of the pages.
"use strict";
const page = (() => {
  const live = document.getElementById("live"), message = document.getElementById("message");
  const tell = (state, words) => { if (live.dataset.state !== state) { live.dataset.state = state; live.textContent = words; } };

  // On news, each subscribed fragment reloads itself, and charts fetch their data.
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
      // A browser reconnects by itself if nothing answers, but not after a response such as a proxy's 503. If the session
      // has expired, the reload leads to the login page.
      if (event.target.readyState === EventSource.CLOSED) setTimeout(() => { if (event.target === news) { renew(); listen(); } }, 5000);
    };
    // Catch up on changes between the rendering of the page and the start of the stream.
    news.addEventListener("now", event => {
      if (event.data !== document.body.dataset.version) renew();
      document.body.dataset.version = event.data;
    });
    // Debounced, so that a busy cluster costs at most one refresh per second; the last event is never lost.
    news.addEventListener("news", event => { document.body.dataset.version = event.data; due ||= setTimeout(() => { due = 0; renew(); }, 1000); });
  }
  // A browser has six connections per host for all tabs: a hidden tab closes its stream.
  function hush() { news?.close(); news = null; missed = true; }
  const heed = () => document.hidden ? hush() : listen();
  document.addEventListener("visibilitychange", heed);
  addEventListener("pagehide", hush);
  addEventListener("pageshow", heed);
  heed();

  // Do not refresh a fragment while its form is open.
  document.body.addEventListener("htmx:beforeRequest", event => {
    const trigger = event.detail.requestConfig.triggeringEvent;
    if (trigger?.type === "news" && event.detail.target.querySelector("details.act[open]")) event.preventDefault();
  });
  document.body.addEventListener("htmx:afterRequest", event => {
    const { successful, xhr, requestConfig } = event.detail;
    if (requestConfig.verb !== "post") return;
    for (const open of document.querySelectorAll("details.act[open]")) open.open = !successful;
    if (successful) { document.body.dispatchEvent(new CustomEvent("acted")); charts.load().catch(() => {}); }
    else say(xhr.responseText || "The dashboard does not respond; reload the page.");
    message.scrollIntoView({ block: "nearest" });
  });
  function say(words) {
    const line = document.createElement("p");
    line.className = "toast bad";
    line.textContent = words;
    message.replaceChildren(line);
  }

  // Keep the keyboard focus when a fragment is replaced.
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

  // The theme is stored in a cookie, so that the server renders the page with it.
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
