// Search the table of workloads or nodes while typing. Not with htmx, which notifies each of a thousand removed elements: that took most
// of the time from key press to display.
"use strict";
(() => {
  const query = document.getElementById("query"), rows = document.getElementById("rows"), path = query.getAttribute("action");

  async function list(button, stay) {
    const said = new FormData(query, button);
    // A new filter or order starts at the first page.
    if (!stay) said.set("page", "1");
    const words = new URLSearchParams([...said].filter(([, value]) => value));
    const answer = await fetch(`/parts${path}?${words}`, { headers: { "HX-Request": "true" } });
    if (answer.status === 401) return location.assign("/login");
    const text = await answer.text();
    if (!answer.ok) return page.say(text);
    page.leave(rows);
    rows.innerHTML = text;
    page.comeBack(rows);
    history.replaceState(null, "", `${path}?${words}`);
  }

  // One request at a time, then the latest query: fast typing waits for one response, not for ten.
  let busy = false, next = null;
  async function listed(button = null, stay = false) {
    const news = stay && !button;
    if (busy) { if (!news || !next) next = [button, stay]; return; }
    busy = true;
    try { await list(button, stay); }
    catch { page.say("The dashboard does not respond; reload the page."); }
    busy = false;
    const asked = next;
    next = null;
    if (asked) listed(...asked);
  }

  document.getElementById("q").addEventListener("input", () => listed());
  query.addEventListener("change", event => { if (event.target.id !== "q") listed(); });
  query.addEventListener("submit", event => {
    event.preventDefault();
    listed(event.submitter, event.submitter?.name === "page");
  });
  // The squares of a heat map are in the order of the rows: a click leads to the row of the square.
  rows.addEventListener("click", async event => {
    const map = event.target.closest("svg.heat");
    if (!map) return;
    const { left, top, width } = map.getBoundingClientRect(), { columns, rows: perPage, count } = map.dataset;
    const side = width / columns, place = Math.floor((event.clientY - top) / side) * columns + Math.floor((event.clientX - left) / side);
    if (place >= count) return;
    document.getElementById("page-number").value = Math.floor(place / perPage) + 1;
    await listed(null, true);
    rows.querySelectorAll("a.row")[place % perPage]?.focus();
  });
  document.body.addEventListener("news", () => listed(null, true));
})();
