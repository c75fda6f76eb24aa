// The choice of versions, from versions.json beside the folders of the versions. Without that file,
// as where one version is looked at from a disk, there is none.
(function () {
  "use strict";

  function start() {
    const holder = document.querySelector(".versions");
    if (!holder || !window.fetch || location.protocol === "file:") {
      return;
    }
    const site = new URL("../", new URL(holder.dataset.root || "./", location.href));
    fetch(new URL("versions.json", site))
      .then((answer) => (answer.ok ? answer.json() : Promise.reject(answer.status)))
      .then((listed) => show(holder, site, listed))
      .catch(() => {});
  }

  function show(holder, site, listed) {
    const current = holder.dataset.version;
    const choice = holder.querySelector("select");
    for (const version of listed.versions) {
      const option = document.createElement("option");
      option.value = version;
      option.textContent = version === listed.latest ? version + " (latest)" : version;
      option.selected = version === current;
      choice.append(option);
    }
    choice.addEventListener("change", () => go(site, choice.value, holder.dataset.page));
    holder.hidden = false;
    if (listed.versions.indexOf(current) > listed.versions.indexOf(listed.latest)) {
      warn(site, listed.latest);
    }
  }

  // To the same page of another version, or to its first page where it has none of that name.
  function go(site, version, page) {
    const folder = new URL(encodeURIComponent(version) + "/", site);
    const same = new URL(page, folder);
    fetch(same, { method: "HEAD" })
      .then((answer) => location.assign(answer.ok ? same : new URL("index.html", folder)))
      .catch(() => location.assign(new URL("index.html", folder)));
  }

  function warn(site, latest) {
    const note = document.createElement("p");
    note.className = "old-version";
    note.append("This is the documentation of an older version. ");
    const link = document.createElement("a");
    link.href = new URL("latest/index.html", site);
    link.textContent = "The latest is " + latest + ".";
    note.append(link);
    const article = document.querySelector("article");
    if (article) {
      article.prepend(note);
    }
  }

  if (document.readyState === "loading") {
    document.addEventListener("DOMContentLoaded", start);
  } else {
    start();
  }
})();
