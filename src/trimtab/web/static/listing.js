// The list of workloads, searched as one types. Not by htmx: it tells each of a thousand elements that it leaves the page, which
// took longer than all else from the key to the picture.
"use strict";
(() => {
  const query = document.getElementById("query"), rows = document.getElementById("rows");

  async function list(button, stay) {
    const said = new FormData(query, button);
    // Whatever narrows or orders the list begins at its first page again.
    if (!stay) said.set("page", "1");
    const words = new URLSearchParams([...said].filter(([, value]) => value));
    const answer = await fetch(`/parts/workloads?${words}`, { headers: { "HX-Request": "true" } });
    if (answer.status === 401) return location.assign("/login");
    const text = await answer.text();
    if (!answer.ok) return page.say(text);
    page.leave(rows);
    rows.innerHTML = text;
    page.comeBack(rows);
    history.replaceState(null, "", `/workloads?${words}`);
  }

  // One at a time, and then the last that was asked for: who types faster than the server answers waits for one answer, not for ten.
  let busy = false, next = null;
  async function listed(button = null, stay = false) {
    const news = stay && !button;
    if (busy) { if (!news || !next) next = [button, stay]; return; }
    busy = true;
    try { await list(button, stay); }
    catch { page.say("the dashboard does not answer"); }
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
  document.body.addEventListener("news", () => listed(null, true));
})();
