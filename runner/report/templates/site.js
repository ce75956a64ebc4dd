/* The script of every page: theme and navigation; on result pages the rows, their evidence and the scatter plot. */
(() => {
  "use strict";
  const site = JSON.parse(document.getElementById("site").textContent);
  const SIGNS = { good: "✓", bad: "✗", neutral: "–", open: "○" };
  const PLACES = "tables?|figs?\\.?|figures?|theorems?|lemmas?|propositions?|corollar(?:y|ies)|sections?|eqs?\\.?";
  const PLACE = new RegExp(`\\b(${PLACES})\\s+([a-z]?\\.?\\d[\\d.]*)`, "gi");

  const byId = id => document.getElementById(id);
  const known = value => value !== undefined && value !== null;
  const toneOf = verdict => site.tones[verdict] || "open";
  const escaped = text => String(text).replace(/[&<>"']/g, c => "&#" + c.charCodeAt(0) + ";");

  function number(x) {
    if (!known(x)) return "";
    if (x === 0) return "0";
    const size = Math.abs(x);
    return size >= 1e4 || size < 1e-3 ? x.toExponential(2) : String(Number(x.toPrecision(4)));
  }
  function loadScript(address) {
    return new Promise(resolve => {
      const script = document.createElement("script");
      script.src = address;
      script.onload = script.onerror = resolve;
      document.head.append(script);
    });
  }

  // ---- rows at a place of a paper, and their verdicts
  function namedPlaces(text) {
    return [...text.matchAll(PLACE)].map(([, kind, n]) => {
      const word = kind.toLowerCase();
      const name = word.startsWith("fig") ? "fig." : word.startsWith("corollar") ? "corollary" : word.replace(/s?\.?$/, "");
      return `${name} ${n.toLowerCase().replace(/\.$/, "")}`;
    });
  }
  function isAt(row, place) {
    return row.places.some(p => p.toLowerCase() === place) || namedPlaces(row.place).includes(place);
  }
  function verdictCounts(rows) {
    const counts = {};
    for (const row of rows) counts[row.verdict] = (counts[row.verdict] || 0) + 1;
    return Object.entries(counts).map(([verdict, n]) => `${n} ${verdict}`).join(", ");
  }
  function question(query) {
    const words = query.replace(PLACE, " ").toLowerCase().split(/\s+/).filter(Boolean);
    return { places: namedPlaces(query), words };
  }
  function fits(asked, row) {
    return asked.places.every(p => isAt(row, p)) && asked.words.every(w => row.text.includes(w));
  }

  // ---- theme and navigation
  function setUpTheme() {
    const button = byId("theme"), root = document.documentElement;
    const label = { "": "Theme: auto", light: "Theme: light", dark: "Theme: dark" };
    const show = () => { button.textContent = label[root.dataset.theme || ""]; };
    button.addEventListener("click", () => {
      const order = ["", "light", "dark"];
      root.dataset.theme = order[(order.indexOf(root.dataset.theme || "") + 1) % 3];
      try { localStorage.setItem("theme", root.dataset.theme); } catch { /* no storage */ }
      show();
    });
    show();
  }
  function setUpNavigation() {
    const menu = byId("menu"), side = byId("side"), list = byId("pages");
    document.documentElement.classList.add("script");
    menu.addEventListener("click", () => {
      menu.setAttribute("aria-expanded", String(side.classList.toggle("shown")));
    });
    if (!list) return;
    const contents = document.querySelector(".contents"), here = contents ? contents.dataset.page : "";
    loadScript(site.root + "pages.js").then(() => {
      const papers = window.hessPages || [], names = papers.flatMap(([, members]) => members);
      const link = name => `<a href="${escaped(site.root + name)}/index.html"${name === here ? ' aria-current="page"' : ""}>${escaped(name)}</a>`;
      list.innerHTML = papers.map(([paper, members]) =>
        `<li><p class="group">${escaped(paper)}</p><ul>${members.map(name => `<li>${link(name)}</li>`).join("")}</ul></li>`).join("");
      const current = list.querySelector("[aria-current]");
      if (current) current.parentElement.append(contents);
      const at = names.indexOf(here), turn = document.querySelector(".turn");
      const near = [at > 0 && ["← ", names[at - 1], ""], at >= 0 && names[at + 1] && ["", names[at + 1], " →"]];
      turn.innerHTML = near.filter(Boolean).map(([before, name, after]) =>
        `<a href="${escaped(site.root + name)}/index.html">${before}${escaped(name)}${after}</a>`).join("");
    });
  }

  // What scrolls sideways can be scrolled with the keyboard.
  function setUpScrolling() {
    for (const element of document.querySelectorAll("pre, .prose table, .formula"))
      if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
  }

  // ---- published against measured
  function setUpScatter() {
    const which = byId("which"), plot = byId("plot"), rows = JSON.parse(byId("points").textContent);
    const draw = () => { plot.innerHTML = scatter(rows.filter(row => !which.value || row.paper === which.value)); };
    which.addEventListener("change", draw);
    draw();
  }
  const link = (page, anchor) => `${encodeURIComponent(page)}/index.html#${encodeURIComponent(anchor)}`;
  function scatter(rows) {
    if (!rows.length) return "No published number with a measured value.";
    const WIDTH = 640, HEIGHT = 460, LEFT = 60, BELOW = 40, EDGE = 10;
    const shapes = { good: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", bad: "M-4 -4L4 4M-4 4L4 -4", neutral: "M-4 -4H4V4H-4Z", open: "M0 -5L5 4H-5Z" };
    const log = value => Math.log10(Math.abs(value));
    const all = rows.flatMap(row => [log(row.published), log(row.measured)]);
    const low = Math.floor(Math.min(...all)), high = Math.max(low + 1, Math.ceil(Math.max(...all)));
    const x = v => LEFT + (WIDTH - LEFT - EDGE) * (v - low) / (high - low);
    const y = v => HEIGHT - BELOW - (HEIGHT - BELOW - EDGE) * (v - low) / (high - low);
    const step = Math.max(1, Math.ceil((high - low) / 8)), ticks = [];
    for (let t = low; t <= high; t += step)
      ticks.push(`<path d="M${x(t)} ${EDGE}V${HEIGHT - BELOW}M${LEFT} ${y(t)}H${WIDTH - EDGE}" stroke="var(--line)"/>` +
        `<text x="${x(t)}" y="${HEIGHT - 24}" text-anchor="middle">1e${t}</text><text x="${LEFT - 6}" y="${y(t) + 4}" text-anchor="end">1e${t}</text>`);
    const marks = rows.map(row => {
      const tone = toneOf(row.verdict), title = `${row.what}, ${row.place}: published ${row.published}, measured ${row.measured}, ${row.verdict}`;
      return `<a href="${escaped(link(row.page, row.id))}"><path class="${tone}" d="${shapes[tone]}" transform="translate(${x(log(row.published))} ${y(log(row.measured))})"` +
        ` fill="currentColor" fill-opacity=".35" stroke="currentColor"><title>${escaped(title)}</title></path></a>`;
    });
    return `<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" width="${WIDTH}" role="group" aria-label="${rows.length} published numbers against measured ones">${ticks.join("")}` +
      `<path d="M${x(low)} ${y(low)}L${x(high)} ${y(high)}" stroke="currentColor" stroke-dasharray="4 3"/>${marks.join("")}` +
      `<text x="${WIDTH / 2}" y="${HEIGHT - 6}" text-anchor="middle">published</text>` +
      `<text x="14" y="${HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 14 ${HEIGHT / 2})">measured</text></svg>`;
  }

  // ---- the rows of an experiment
  function setUpRows() {
    const PAGE = 100, data = JSON.parse(byId("data").textContent), rows = pageRows(data);
    const form = byId("filter"), body = document.querySelector("#table tbody"), more = byId("more");
    const state = { q: "", verdict: "", kind: "", sort: "", shown: PAGE }, opened = new Set();
    for (const verdict of [...new Set(rows.map(row => row.verdict))].sort()) form.elements.verdict.add(new Option(verdict, verdict));

    function isOfKind(row) {
      return !state.kind || row.kind === state.kind || (state.kind === "paper" && row.kind !== "extension");
    }
    function chosen() {
      const asked = question(state.q);
      const found = rows.filter(row => (!state.verdict || row.verdict === state.verdict) && isOfKind(row) && fits(asked, row));
      return state.sort ? sorted(found, state.sort) : found;
    }
    function draw() {
      const found = chosen(), listed = verdictCounts(found);
      body.innerHTML = found.slice(0, state.shown).map(row => rowHtml(row, data, opened.has(row.id))).join("");
      more.hidden = found.length <= state.shown;
      form.querySelector("output").textContent = `${found.length} of ${rows.length} rows${listed ? ": " : ""}${listed}`;
      for (const head of document.querySelectorAll("#table th")) {
        const key = head.firstElementChild.dataset.sort;
        head.setAttribute("aria-sort", { [key]: "ascending", ["-" + key]: "descending" }[state.sort] || "none");
      }
    }
    function remember() {
      const kept = Object.entries(state).filter(([key, value]) => value && key !== "shown");
      history.replaceState(null, "", "#rows" + (kept.length ? "?" + new URLSearchParams(kept) : ""));
    }
    function filter(query) {
      const asked = new URLSearchParams(query);
      for (const key of ["q", "verdict", "kind", "sort"]) state[key] = asked.get(key) || "";
      for (const key of ["q", "verdict", "kind"]) form.elements[key].value = state[key];
      draw();
      byId("rows").scrollIntoView();
    }
    function open(id) {
      opened.add(id);
      if (!chosen().slice(0, state.shown).some(row => row.id === id)) {
        Object.assign(state, { q: "", verdict: "", kind: "", shown: rows.length });
        form.reset();
      }
      draw();
      byId(id).scrollIntoView({ block: "center" });
    }
    function follow() {
      const hash = location.hash.slice(1), target = decodeURIComponent(hash).split("?")[0];
      const asked = hash.split("?")[1];
      if (target === "rows" && asked !== undefined) filter(asked);
      else if (rows.some(row => row.id === target)) open(target);
    }
    form.addEventListener("input", () => {
      for (const key of ["q", "verdict", "kind"]) state[key] = form.elements[key].value;
      state.shown = PAGE;
      draw();
      remember();
    });
    form.addEventListener("submit", event => event.preventDefault());
    more.addEventListener("click", () => { state.shown += PAGE; draw(); });
    document.querySelector("#table thead").addEventListener("click", event => {
      const key = event.target.dataset.sort;
      if (!key) return;
      state.sort = state.sort === key ? "-" + key : key;
      draw();
      remember();
    });
    body.addEventListener("click", event => {
      const id = event.target.closest("[data-row]")?.dataset.row;
      if (!id) return;
      if (!opened.delete(id)) opened.add(id);
      draw();
      body.querySelector(`[data-row="${CSS.escape(id)}"]`).focus();
    });
    addEventListener("hashchange", follow);
    draw();
    follow();
  }
  function pageRows(data) {
    const numbers = data.scores.map(row => ({
      ...row, kind: "number", place: row.source || "", what: row.label, ours: row.measured_mean,
      printed: known(row.paper_mean) ? row.paper_mean : row.upper_bound,
    }));
    const statements = data.claims.map(row => ({
      ...row, kind: row.extension ? "extension" : "statement", place: row.where || "", what: row.statement,
      printed: row.threshold, ours: known(row.statistic) ? Number(row.statistic) : undefined,
    }));
    return [...numbers, ...statements].map(row => ({
      ...row, text: [row.what, row.verdict, row.place, row.reason, row.detail, row.name, row.id].join(" ").toLowerCase(),
    }));
  }
  function sorted(rows, sort) {
    const key = sort.replace(/^-/, ""), sign = sort.startsWith("-") ? -1 : 1;
    const value = row => known(row[key]) ? row[key] : "";
    const order = (x, y) => typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
    return [...rows].sort((a, b) => sign * order(value(a), value(b)));
  }
  function spread(mean, std) {
    return number(mean) + (known(std) ? ` ± ${number(std)}` : "");
  }
  function published(row) {
    if (row.kind !== "number") return escaped(row.printed || "");
    if (known(row.paper_mean)) return spread(row.paper_mean, row.paper_std);
    return known(row.upper_bound) ? `≤ ${number(row.upper_bound)}` : "";
  }
  function measured(row) {
    return row.kind === "number" ? spread(row.measured_mean, row.measured_std) : number(row.ours);
  }
  function rowHtml(row, data, open) {
    const tone = toneOf(row.verdict), figure = row.places.map(p => data.figures[p]).find(Boolean), id = escaped(row.id);
    const place = escaped(row.place) + (figure ? ` <a href="#figure.${escaped(figure)}">figure</a>` : "");
    const why = row.why ? `<p class="small">${escaped(row.why)}</p>` : "";
    return `<tr id="${id}"><td data-name="verdict" class="${tone}">${SIGNS[tone]} ${escaped(row.verdict)}</td>` +
      `<td><button type="button" class="toggle" aria-expanded="${open}" data-row="${id}">${escaped(row.what)}</button>${why}</td>` +
      `<td data-name="published">${published(row)}</td><td data-name="measured">${measured(row)}</td>` +
      `<td data-name="ratio">${number(row.ratio)}</td><td data-name="place">${place}</td></tr>` +
      (open ? `<tr class="detail"><td colspan="6">${dots(row)}${evidence(row, data)}</td></tr>` : "");
  }
  function dots(row) {
    if (!row.values || !row.values.length || !known(row.paper_mean)) return "";
    const mean = row.paper_mean, margin = row.margin || 0, hasInterval = known(row.low);
    const ends = [...row.values.map(([, value]) => value), mean - margin, mean + margin];
    if (hasInterval) ends.push(mean + row.low, mean + row.high);
    const least = Math.min(...ends), most = Math.max(...ends), pad = (most - least || Math.abs(most) || 1) * 0.06;
    const x = value => 10 + 460 * (value - least + pad) / (most - least + 2 * pad);
    const circles = row.values.map(([seed, value]) =>
      `<circle cx="${x(value)}" cy="26" r="4" fill="none" stroke="currentColor" stroke-width="1.5"><title>seed ${seed}: ${number(value)}</title></circle>`).join("");
    const seeds = row.values.map(([seed, value]) => `${seed}: ${number(value)}`).join(", ");
    const interval = hasInterval ? `<line x1="${x(mean + row.low)}" x2="${x(mean + row.high)}" y1="44" y2="44" stroke="currentColor" stroke-width="2"/>` : "";
    return `<svg viewBox="0 0 480 76" width="480" role="img" aria-label="Values of the seeds ${escaped(seeds)}; the paper has ${number(mean)}, margin ${number(margin)}" style="max-width:100%">` +
      `<rect x="${x(mean - margin)}" width="${Math.max(1, x(mean + margin) - x(mean - margin))}" y="8" height="44" fill="currentColor" opacity=".12"/>` +
      `<line x1="${x(mean)}" x2="${x(mean)}" y1="4" y2="56" stroke="currentColor" stroke-dasharray="3 2"/>${interval}${circles}` +
      `<text x="10" y="70">${number(least - pad)}</text><text x="470" y="70" text-anchor="end">${number(most + pad)}</text>` +
      `<text x="${x(mean)}" y="70" text-anchor="middle">paper ${number(mean)}</text></svg>` +
      `<p class="small">Circles: our seeds. Band: the margin around the printed value. Bar: 90 % confidence interval of the difference.</p>`;
  }
  function evidence(row, data) {
    const about = row.kind === "number" ? [...numberFacts(row), ...cellFacts(row, data)] : statementFacts(row);
    const shown = [[data.replicated, row.replication], ...about].filter(([, value]) => known(value) && value !== "");
    const lines = shown.map(([name, value]) => `<dt>${escaped(name)}</dt><dd>${escaped(value)}</dd>`).join("");
    return `<dl class="facts">${lines}<dt>link</dt><dd><a href="#${escaped(row.id)}">#${escaped(row.id)}</a></dd></dl>`;
  }
  function numberFacts(row) {
    const interval = known(row.low) ? `, 90 % interval ${number(row.low)} to ${number(row.high)}` : "";
    return [
      ["identifier", Object.entries(row.keys).map(([key, value]) => `${key}=${value}`).join(" ")],
      ["published", published(row) + (row.place ? `, ${row.place}` : "")],
      ["±", known(row.measured_std) ? "population standard deviations over the seeds (ddof 0)" : ""],
      ["reason", row.reason],
      ["margin", number(row.margin) + (row.margin_reason ? `: ${row.margin_reason}` : "")],
      ["difference", known(row.difference) ? number(row.difference) + interval : ""],
      ["equivalence test", row.equivalence],
      ["published value in our 95 % interval", row.in_our_95],
      ["our mean in the prediction interval of the paper", row.in_their_prediction],
      ["sign preserved", row.sign_kept],
      ["ordering preserved", number(row.order_kept)],
      ["note", row.note],
    ];
  }
  function statementFacts(row) {
    const listed = parts => Object.entries(parts).map(([part, verdict]) => `${part}: ${verdict}`).join("; ");
    return [
      ["statement", row.name], ["criterion", row.threshold], ["measured", row.statistic],
      ["variants", listed(row.variants)], ["other seeds", listed(row.other_seeds)], ["details", row.detail],
      ["speaks of", row.group],
    ];
  }
  function cellFacts(row, data) {
    const same = ([key, value]) => !(key in row.keys) || String(value) === row.keys[key] || Number(value) === Number(row.keys[key]);
    const cells = data.cells.filter(cell => Object.entries(cell.params).every(same));
    if (!cells.length) return [];
    const params = Object.entries(Object.assign({}, ...cells.map(cell => cell.params))).filter(([key]) => known(row.keys[key]));
    const seeds = [...new Set(cells.map(cell => cell.seed))].sort((a, b) => a - b);
    const rest = cells.length > 12 ? ` and ${cells.length - 12} more` : "";
    const words = ["hess-run", ...(seeds.length > 1 ? ["-m"] : []), `experiment=${data.name}`,
      ...params.map(([key, value]) => `${key}=${value}`), `seed=${seeds.join(",")}`, "force=true"];
    return [["cells", cells.slice(0, 12).map(cell => cell.id).join(" ") + rest], ["reproduce", words.join(" ")]];
  }

  // ---- statistics and large figures
  function setUpStatistics() {
    const button = byId("load-stats");
    if (!button) return;
    const shown = value => value !== "" && !isNaN(value) ? number(Number(value)) : value;
    button.addEventListener("click", async () => {
      await loadScript("stats.js");
      const { columns, rows } = window.hessStats;
      const head = columns.map(name => `<th scope="col">${escaped(name)}</th>`).join("");
      const lines = rows.map(row => `<tr>${row.map(value => `<td>${value === "nan" ? "" : escaped(shown(value))}</td>`).join("")}</tr>`);
      byId("stats").innerHTML = `<table><thead><tr>${head}</tr></thead><tbody>${lines.join("")}</tbody></table>`;
      button.remove();
    });
  }
  function setUpFigures() {
    const box = byId("large");
    for (const anchor of document.querySelectorAll("figure > a")) anchor.addEventListener("click", event => {
      if (event.ctrlKey || event.metaKey || !box.showModal) return;
      event.preventDefault();
      Object.assign(box.querySelector("img"), { src: anchor.href, alt: anchor.querySelector("img").alt });
      box.showModal();
    });
    box.addEventListener("click", () => box.close());
  }

  setUpTheme();
  setUpScrolling();
  addEventListener("resize", setUpScrolling);
  if (site.root !== null) setUpNavigation();
  if (byId("plot")) setUpScatter();
  if (byId("data")) { setUpRows(); setUpStatistics(); }
  if (byId("large")) setUpFigures();
})();
