/* Theme, menu, large figures, and tables that sort and filter: rows are shown, hidden and ordered, and nothing is said of them. */
(() => {
  "use strict";
  const root = document.documentElement, byId = id => document.getElementById(id);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  function setUpTheme() {
    const button = byId("theme"), order = ["", "light", "dark"];
    const show = () => { button.textContent = `Theme: ${root.dataset.theme || "auto"}`; };
    try { root.dataset.theme = localStorage.getItem("theme") || ""; } catch { /* no storage */ }
    button.addEventListener("click", () => {
      root.dataset.theme = order[(order.indexOf(root.dataset.theme || "") + 1) % 3];
      try { localStorage.setItem("theme", root.dataset.theme); } catch { /* no storage */ }
      show();
    });
    show();
  }
  function setUpMenu() {
    root.classList.add("script");
    byId("menu")?.addEventListener("click", event => {
      event.target.setAttribute("aria-expanded", String(byId("side").classList.toggle("shown")));
    });
  }
  // What scrolls sideways can be scrolled with the keyboard.
  function setUpScrolling() {
    for (const element of all("pre, .prose table, .formula, .prose p:has(> img)"))
      if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
  }
  function setUpFigures() {
    const box = byId("large");
    for (const anchor of all("figure > a")) anchor.addEventListener("click", event => {
      if (event.ctrlKey || event.metaKey || !box.showModal) return;
      event.preventDefault();
      Object.assign(box.querySelector("img"), { src: anchor.href, alt: anchor.querySelector("img").alt });
      box.showModal();
    });
    box?.addEventListener("click", () => box.close());
  }

  function setUpSorting(table) {
    const value = (row, column) => row.cells[column].textContent.trim();
    const order = (a, b) => {
      const [x, y] = [parseFloat(a.replace("at most ", "")), parseFloat(b.replace("at most ", ""))];
      return isNaN(x) || isNaN(y) ? a.localeCompare(b) : x - y;
    };
    all("th button", table).forEach((button, column) => button.addEventListener("click", () => {
      const head = button.parentElement, sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      all("th", table).forEach(th => th.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => sign * order(value(a, column), value(b, column)));
      table.tBodies[0].append(...rows);
    }));
  }
  // A word of a query begins a word of the row, and "Table 5" is not Table 51.
  function matcher(query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean).map(word =>
      new RegExp(`(^|[^\\w])${word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}${/\d$/.test(word) ? "(?![\\d])" : ""}`));
    return text => words.every(word => word.test(text));
  }
  function setUpFilter(form) {
    const section = form.closest("section"), rows = all("table.rows tbody tr", section);
    const texts = new Map(rows.map(row => [row, row.textContent.toLowerCase()]));
    const { q, verdict } = form.elements;
    for (const one of [...new Set(rows.map(row => row.dataset.verdict).filter(Boolean))].sort()) verdict.add(new Option(one, one));
    verdict.parentElement.hidden = verdict.length < 2;
    function draw() {
      const fits = matcher(q.value);
      for (const row of rows) row.hidden = !(fits(texts.get(row)) && (!verdict.value || row.dataset.verdict === verdict.value));
      form.querySelector("output").textContent = `${rows.filter(row => !row.hidden).length} of ${rows.length} rows`;
    }
    function remember() {
      const kept = Object.entries({ q: q.value, verdict: verdict.value }).filter(([, value]) => value);
      history.replaceState(null, "", `#${section.getAttribute("aria-labelledby")}${kept.length ? `?${new URLSearchParams(kept)}` : ""}`);
    }
    function follow() {
      const [target, asked] = location.hash.slice(1).split("?");
      const row = rows.find(one => one.id && one.id === decodeURIComponent(target));
      if (row) {
        if (row.hidden) { form.reset(); draw(); }
        row.querySelector("details").open = true;
        row.scrollIntoView({ block: "center" });
      } else if (target === section.getAttribute("aria-labelledby") && asked !== undefined) {
        const given = new URLSearchParams(asked);
        q.value = given.get("q") || "";
        verdict.value = given.get("verdict") || "";
        draw();
        section.scrollIntoView();
      }
    }
    form.addEventListener("input", () => { draw(); remember(); });
    form.addEventListener("submit", event => event.preventDefault());
    addEventListener("hashchange", follow);
    draw();
    follow();
  }

  setUpTheme();
  setUpMenu();
  setUpScrolling();
  addEventListener("resize", setUpScrolling);
  setUpFigures();
  all("table.rows").forEach(setUpSorting);
  all("form.filter").forEach(setUpFilter);
})();
