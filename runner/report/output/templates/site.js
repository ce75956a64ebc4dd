/* The menu of the documentation, and tables that sort and filter: rows are shown, hidden and ordered, and nothing is said of them. */
(() => {
  "use strict";
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  document.documentElement.classList.add("script");
  document.getElementById("menu")?.addEventListener("click", event => {
    event.target.setAttribute("aria-expanded", String(document.getElementById("side").classList.toggle("shown")));
  });

  function setUpSorting(table) {
    const order = (a, b) => {
      const [x, y] = [a, b].map(text => parseFloat(text.replace("at most ", "")));
      return isNaN(x) || isNaN(y) ? a.localeCompare(b) : x - y;
    };
    all("th", table).forEach((head, column) => head.firstChild.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      all("th", table).forEach(th => th.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const text = row => row.cells[column].textContent.trim();
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort((a, b) => sign * order(text(a), text(b))));
    }));
  }
  // A word of a query begins a word of the row, and "Table 5" is not Table 51.
  function matcher(query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean).map(word =>
      new RegExp(`(^|[^\\w])${word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}${/\d$/.test(word) ? "(?![\\d])" : ""}`));
    return text => words.every(word => word.test(text));
  }
  function setUpFilter(form) {
    const section = form.closest("section"), name = section.getAttribute("aria-labelledby");
    const rows = all("table.rows tbody tr", section), { q, verdict } = form.elements;
    const verdicts = new Set(rows.map(row => row.dataset.verdict).filter(Boolean));
    for (const one of [...verdicts].sort()) verdict.add(new Option(one, one));
    verdict.parentElement.hidden = !verdicts.size;
    function draw() {
      const fits = matcher(q.value);
      for (const row of rows) row.hidden = !(fits(row.textContent.toLowerCase()) && (!verdict.value || row.dataset.verdict === verdict.value));
      form.querySelector("output").textContent = `${rows.filter(row => !row.hidden).length} of ${rows.length} rows`;
    }
    function remember() {
      const kept = new URLSearchParams([["q", q.value], ["verdict", verdict.value]].filter(([, value]) => value)).toString();
      history.replaceState(null, "", `#${name}${kept && `?${kept}`}`);
    }
    function follow() {
      const [target, asked] = location.hash.slice(1).split("?");
      const row = rows.find(one => one.id && one.id === decodeURIComponent(target));
      if (row) {
        if (row.hidden) { form.reset(); draw(); }
        row.querySelector("details").open = true;
        row.scrollIntoView({ block: "center" });
      } else if (target === name && asked !== undefined) {
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
  all("table.rows").forEach(setUpSorting);
  all("form.filter").forEach(setUpFilter);
})();
