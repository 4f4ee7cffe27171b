// Keys, live pages and running clocks. Everything else works without scripts.
(() => {
  "use strict";
  const typing = (target) => target.closest("input, select, textarea, [contenteditable]") !== null;
  const links = () => [...document.querySelectorAll("[data-row]")].map((row) => row.querySelector("a[href]") || row);

  function move(by) {
    const rows = links();
    if (!rows.length) return;
    const row = document.activeElement && document.activeElement.closest("[data-row]");
    const now = row ? rows.findIndex((each) => row.contains(each)) : -1;
    const next = rows[now < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(now + by, 0), rows.length - 1)];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }

  function mark() {
    const row = document.activeElement && document.activeElement.closest("[data-row]");
    const box = row && row.querySelector("input[type=checkbox]");
    if (box) { box.checked = !box.checked; count(); }
  }

  function count() {
    const button = document.querySelector("[data-compare]");
    if (!button) return;
    const marked = document.querySelectorAll("#list input[name=run]:checked").length;
    button.disabled = marked < 2 || marked > 6;
    button.textContent = marked ? `Compare ${marked}` : "Compare";
  }

  function help() {
    const dialog = document.getElementById("keys");
    if (dialog && !dialog.open) dialog.showModal();
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) && event.target.type !== "checkbox") return;
    if (document.getElementById("keys")?.open) return;
    const search = document.getElementById("q") || document.querySelector("[data-search]");
    const done = { "/": () => { search.focus(); search.select(); }, j: () => move(1), k: () => move(-1), x: mark, "?": help }[event.key];
    if (done) { event.preventDefault(); done(); }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && typing(event.target)) event.target.blur();
    if (event.key === "ArrowDown" && event.target.id === "q") { event.preventDefault(); event.target.blur(); move(1); }
  });
  document.addEventListener("change", (event) => { if (event.target.matches("#list input")) count(); });
  document.addEventListener("click", (event) => { if (event.target.closest("[data-keys]")) help(); });
  document.addEventListener("htmx:afterSwap", () => { count(); tick(); });
  document.addEventListener("submit", (event) => {
    const asked = event.target.dataset.confirm;
    if (asked && !window.confirm(asked)) event.preventDefault();
  });

  // A part of the page that the server sends again after each change. A hidden page keeps no connection: browsers allow few per server.
  const live = document.querySelector("[data-live]");
  let stream = null;
  function watch() {
    if (!live || document.hidden || stream) return;
    stream = new EventSource(live.dataset.live);
    stream.addEventListener("page", (event) => {
      if (live.querySelector("figure:hover, .banner:hover")) return;
      live.innerHTML = event.data;
      tick();
    });
    stream.addEventListener("ended", () => { stream.close(); window.location.reload(); });
  }
  function leave() { if (stream) { stream.close(); stream = null; } }
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : watch()));
  window.addEventListener("pagehide", leave);

  function words(seconds) {
    const s = Math.max(0, Math.floor(seconds)), m = Math.floor(s / 60), h = Math.floor(m / 60);
    return s < 60 ? `${s} s` : m < 60 ? `${m} min ${s % 60} s` : h < 48 ? `${h} h ${m % 60} min` : `${Math.floor(h / 24)} d ${h % 24} h`;
  }
  function tick() {
    for (const each of document.querySelectorAll("[data-since]")) each.textContent = words((Date.now() - Date.parse(each.dataset.since)) / 1000);
  }
  setInterval(tick, 1000);
  watch();
  tick();
  count();
})();
