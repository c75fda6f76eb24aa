// Keeps the panels of the page up to date. Their HTML comes from the server, which escapes it.
"use strict";
(() => {
  const status = document.getElementById("status");
  const button = document.getElementById("pause");
  const events = document.body.dataset.events;
  if (!events || !window.EventSource) return;
  let source = null;
  let paused = false;
  let timer = 0;

  const say = (text) => { if (status.textContent !== text) status.textContent = text; };

  const isInUse = (panel) => {
    const selection = window.getSelection();
    return selection && !selection.isCollapsed && panel.contains(selection.anchorNode);
  };

  const places = "a, summary, button, [tabindex]";

  // The same place in the HTML before and after: by its tag, its link, and what it is part of.
  const key = (node) => [node.tagName, node.getAttribute("href"), node.closest("[id]").id].join("|");

  // What the reader opened or closed stays so, whatever the server's HTML says; but what is well and
  // closed again is open at its next trouble.
  const folds = (place) => [...place.querySelectorAll("details[id]")];
  const shown = new Map(folds(document).map((each) => [each.id, each.open]));
  const chosen = new Map();
  const noteChoices = (place) => {
    for (const each of folds(place)) if (each.open !== shown.get(each.id)) chosen.set(each.id, each.open);
  };

  const replace = (id, html) => {
    const panel = document.getElementById(id);
    // What somebody has marked, to copy it, or is clicking is not taken away.
    if (!panel || isInUse(panel) || panel.matches(":active")) return;
    noteChoices(panel);
    const scrolled = [...panel.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    const focused = panel.contains(document.activeElement) ? document.activeElement : null;
    const alike = (name) => [...panel.querySelectorAll(places)].filter((each) => key(each) === name);
    const name = focused && key(focused);
    const place = focused ? alike(name).indexOf(focused) : -1;
    panel.innerHTML = html;
    for (const each of folds(panel)) {
      if (!each.open && chosen.get(each.id) === false) chosen.delete(each.id);
      if (chosen.has(each.id)) each.open = chosen.get(each.id);
      shown.set(each.id, each.open);
    }
    [...panel.querySelectorAll(".scroll")].forEach((each, number) => { each.scrollLeft = scrolled[number] || 0; });
    if (focused) {
      const again = alike(name);
      const found = again[place] || again[0];
      if (found) found.focus({ preventScroll: true });
    }
  };

  const connect = () => {
    clearTimeout(timer);
    source = new EventSource(events);
    source.addEventListener("open", () => say("Live"));
    source.addEventListener("panels", (event) => {
      say("Live");
      const panels = JSON.parse(event.data);
      for (const id of Object.keys(panels)) replace(id, panels[id]);
    });
    source.addEventListener("error", () => {
      say("No contact: trying again");
      if (source.readyState === EventSource.CLOSED) timer = setTimeout(connect, 3000);
    });
  };

  const disconnect = () => { clearTimeout(timer); if (source) source.close(); source = null; };

  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Go on" : "Pause";
    if (paused) { disconnect(); say("Paused"); } else { connect(); }
  });
  // A page in the background costs the operator nothing.
  document.addEventListener("visibilitychange", () => {
    if (paused) return;
    if (document.hidden) disconnect(); else if (!source) connect();
  });
  connect();
})();
