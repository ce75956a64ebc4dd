(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const PAGE = 100, GOOD = ["exact match", "reproduced", "confirmed"], BAD = ["not reproduced", "refuted"];
  const NEUTRAL = ["minor error", "calibrated", "true by construction", "not comparable"];
  const tone = v => GOOD.includes(v) ? "good" : BAD.includes(v) ? "bad" : NEUTRAL.includes(v) ? "neutral" : "open";
  const sign = { good: "✓", bad: "✗", neutral: "–", open: "○" };
  const esc = t => String(t).replace(/[&<>"']/g, c => "&#" + c.charCodeAt(0) + ";");
  const maths = t => t.split("\u2061").map((part, i) => i % 2 ? data.maths[part] : esc(part)).join("");
  const num = x => x === undefined || x === null ? "" : x === 0 ? "0" :
    Math.abs(x) >= 1e4 || Math.abs(x) < 1e-3 ? x.toExponential(2) : String(Number(x.toPrecision(4)));
  const known = x => x !== undefined && x !== null;

  const rows = [
    ...data.scores.map(r => ({ ...r, kind: "number", place: r.source || "",
      what: r.label,
      paper: known(r.paper_mean) ? r.paper_mean : r.upper_bound, ours: r.measured_mean })),
    ...data.claims.map(r => ({ ...r, kind: r.extension ? "extension" : "statement", what: r.statement, place: r.where || "",
      paper: r.threshold, ours: r.statistic === undefined ? undefined : Number(r.statistic) })),
  ];
  for (const row of rows) row.text = [row.what, row.verdict, row.place, row.reason, row.detail, row.name, row.id].join(" ").replaceAll("\u2061", "").toLowerCase();

  // One sentence for the rows of a table, figure or theorem: does it hold?
  function answer(place, verdicts) {
    const counts = { good: 0, bad: 0, neutral: 0, open: 0 };
    for (const [verdict, n] of Object.entries(verdicts)) counts[tone(verdict)] += n;
    const all = counts.good + counts.bad + counts.open, other = counts.neutral ? ` Not counted: ${counts.neutral} more.` : "";
    if (!all) return `${place}: no row is judged.${other}`;
    if (counts.good === all) return `${place} holds: all ${all} judged rows agree.${other}`;
    const parts = [`${counts.good} of ${all} judged rows agree`];
    if (counts.bad) parts.push(`${counts.bad} do not`);
    if (counts.open) parts.push(`${counts.open} cannot be decided`);
    return `${place} ${counts.bad ? "does not hold in every row" : "is not contradicted"}: ${parts.join(", ")}.${other}`;
  }
  const form = document.getElementById("filter"), body = document.querySelector("#table tbody");
  const more = document.getElementById("more"), count = form.querySelector("output");
  const state = { q: "", verdict: "", kind: "", sort: "", shown: PAGE };
  const opened = new Set();
  for (const v of [...new Set(rows.map(r => r.verdict))].sort())
    form.verdict.add(new Option(v, v));

  function printed(row) {
    if (row.kind !== "number") return esc((row.paper || "").replace(/<=/g, "≤").replace(/>=/g, "≥"));
    if (known(row.paper_mean)) return num(row.paper_mean) + (known(row.paper_std) ? " ± " + num(row.paper_std) : "");
    return known(row.upper_bound) ? "≤ " + num(row.upper_bound) : "";
  }
  function measured(row) {
    if (row.kind !== "number") return num(row.ours);
    return num(row.measured_mean) + (known(row.measured_std) ? " ± " + num(row.measured_std) : "");
  }
  function place(row) {
    const figure = row.places.map(p => data.figures[p]).find(Boolean);
    return esc(row.place) + (figure ? ` <a href="#figure.${esc(figure)}">figure</a>` : "");
  }
  function line(row) {
    const t = tone(row.verdict), open = opened.has(row.id);
    return `<tr id="${esc(row.id)}"><td data-name="verdict" class="${t}">${sign[t]} ${esc(row.verdict)}${row.shifted === "yes" ? ", shifted" : ""}</td>` +
      `<td><button type="button" class="toggle" aria-expanded="${open}" data-row="${esc(row.id)}">${maths(row.what)}</button></td>` +
      `<td data-name="published">${printed(row)}</td><td data-name="measured">${measured(row)}</td><td data-name="ratio">${num(row.ratio)}</td><td data-name="place">${place(row)}</td></tr>` + (open ? detail(row) : "");
  }
  function dots(row) {
    if (!row.values || !row.values.length || !known(row.paper_mean)) return "";
    const values = row.values.map(v => v[1]), margin = row.margin || 0, mean = row.paper_mean;
    const ends = [...values, mean - margin, mean + margin];
    if (known(row.low)) ends.push(mean + row.low, mean + row.high);
    let lo = Math.min(...ends), hi = Math.max(...ends);
    const pad = (hi - lo || Math.abs(hi) || 1) * 0.06; lo -= pad; hi += pad;
    const x = v => 10 + 460 * (v - lo) / (hi - lo);
    const interval = known(row.low) ? `<line x1="${x(mean + row.low)}" x2="${x(mean + row.high)}" y1="44" y2="44" stroke="currentColor" stroke-width="2"/>` : "";
    return `<svg viewBox="0 0 480 76" width="480" role="img" aria-label="Values of the seeds ${esc(row.values.map(v => v[0] + ": " + num(v[1])).join(", "))}; the paper has ${num(mean)}, margin ${num(margin)}" style="max-width:100%">` +
      `<rect x="${x(mean - margin)}" width="${Math.max(1, x(mean + margin) - x(mean - margin))}" y="8" height="44" fill="currentColor" opacity=".12"/>` +
      `<line x1="${x(mean)}" x2="${x(mean)}" y1="4" y2="56" stroke="currentColor" stroke-dasharray="3 2"/>` + interval +
      row.values.map(v => `<circle cx="${x(v[1])}" cy="26" r="4" fill="none" stroke="currentColor" stroke-width="1.5"><title>seed ${v[0]}: ${num(v[1])}</title></circle>`).join("") +
      `<text x="10" y="70">${num(lo)}</text><text x="470" y="70" text-anchor="end">${num(hi)}</text><text x="${x(mean)}" y="70" text-anchor="middle">paper ${num(mean)}</text></svg>` +
      `<p class="small">Circles: our seeds. Band: the margin around the printed value. Bar: 90 % confidence interval of the difference.</p>`;
  }
  function behind(row) {
    const keys = row.keys || {};
    return data.cells.filter(c => Object.entries(c.params).every(([k, v]) => !(k in keys) || String(v) === keys[k] || Number(v) === Number(keys[k])));
  }
  const listed = parts => Object.entries(parts).map(([part, verdict]) => `${part}: ${verdict}`).join("; ");
  function detail(row) {
    const parts = [];
    const add = (name, value) => { if (value !== undefined && value !== null && value !== "") parts.push(`<dt>${name}</dt><dd>${esc(value)}</dd>`); };
    add(data.replicated, row.replication);
    if (row.kind === "number") {
      add("identifier", Object.entries(row.keys).map(([k, v]) => `${k}=${v}`).join(" ")); add("published", printed(row) + (row.place ? ", " + row.place : "")); add("reason", row.reason);
      add("margin", num(row.margin) + (row.margin_reason ? ": " + row.margin_reason : ""));
      add("difference", known(row.difference) ? num(row.difference) + (known(row.low) ? `, 90 % interval ${num(row.low)} to ${num(row.high)}` : "") : "");
      add("equivalence test", row.equivalence); add("seeds that would decide", num(row.seeds_needed));
      add("published value in our 95 % interval", row.in_our_95); add("our mean in the prediction interval of the paper", row.in_their_prediction);
      add("sign preserved", row.sign_kept); add("ordering preserved", num(row.order_kept)); add("note", row.note);
      const cells = behind(row), params = {};
      for (const c of cells) for (const [k, v] of Object.entries(c.params)) if (row.keys[k] !== undefined) params[k] = v;
      const seeds = [...new Set(cells.map(c => c.seed))].sort((a, b) => a - b);
      if (cells.length) {
        add("cells", cells.slice(0, 12).map(c => c.id).join(" ") + (cells.length > 12 ? ` and ${cells.length - 12} more` : ""));
        add("reproduce", `hess-run ${seeds.length > 1 ? "-m " : ""}experiment=${data.name} ${Object.entries(params).map(([k, v]) => `${k}=${v}`).join(" ")} seed=${seeds.join(",")} force=true`);
      }
    } else {
      add("statement", row.name); add("criterion", row.threshold); add("measured", row.statistic); add("variants", listed(row.variants)); add("other seeds", listed(row.other_seeds));
      add("details", row.detail); add("speaks of", row.group); add("seeds that would decide", row.seeds_needed);
    }
    return `<tr class="detail"><td colspan="6">${dots(row)}<dl>${parts.join("")}<dt>link</dt><dd><a href="#${esc(row.id)}">#${esc(row.id)}</a></dd></dl></td></tr>`;
  }
  function chosen() {
    const place = /\b(?:table|fig\.?|figure|theorem|lemma|proposition|corollary)\s+[a-z]?\.?\d[\d.]*/gi;
    const asked = (state.q.match(place) || []).map(p => p.toLowerCase().replace(/^fig(?:ure|\.)?\s+/, "fig. ").replace(/\s+/g, " "));
    const words = state.q.replace(place, " ").toLowerCase().split(/\s+/).filter(Boolean);
    let found = rows.filter(r => (!state.verdict || r.verdict === state.verdict) && (!state.kind || r.kind === state.kind || (state.kind === "paper" && r.kind !== "extension")) && asked.every(p => r.places.some(q => q.toLowerCase() === p)) && words.every(w => r.text.includes(w)));
    if (state.sort) {
      const down = state.sort.startsWith("-"), key = state.sort.replace(/^-/, "");
      const value = r => r[key] === undefined || r[key] === null ? "" : r[key];
      found = [...found].sort((a, b) => {
        const x = value(a), y = value(b);
        const c = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
        return down ? -c : c;
      });
    }
    return found;
  }
  function draw() {
    const found = chosen();
    body.innerHTML = found.slice(0, state.shown).map(line).join("");
    more.hidden = found.length <= state.shown;
    const verdicts = {};
    for (const row of found) verdicts[row.verdict] = (verdicts[row.verdict] || 0) + 1;
    const place = state.q.trim(), asksPlace = /^(?:table|fig\.?|figure|theorem|lemma|proposition|corollary)\s+[a-z]?\.?\d[\d.]*$/i.test(place);
    const sentence = asksPlace && found.length ? answer(place, Object.fromEntries(Object.entries(verdicts))) + " " : "";
    count.textContent = sentence + `${found.length} of ${rows.length} rows: ` + Object.entries(verdicts).map(([v, n]) => `${n} ${v}`).join(", ");
    for (const th of document.querySelectorAll("#table th")) {
      const key = th.firstElementChild.dataset.sort;
      th.setAttribute("aria-sort", state.sort === key ? "ascending" : state.sort === "-" + key ? "descending" : "none");
    }
  }
  function remember() {
    const kept = Object.entries(state).filter(([k, v]) => v && k !== "shown");
    history.replaceState(null, "", "#rows" + (kept.length ? "?" + new URLSearchParams(kept) : ""));
  }
  function follow() {
    const [target, query] = decodeURIComponent(location.hash.slice(1)).split("?");
    const raw = location.hash.slice(1).split("?")[1] || location.search.slice(1);
    if ((target === "rows" && query !== undefined) || (!target && /(^|&)q=/.test(raw))) {
      const asked = new URLSearchParams(raw);
      for (const key of ["q", "verdict", "kind", "sort"]) state[key] = asked.get(key) || "";
      for (const key of ["q", "verdict", "kind"]) form[key].value = state[key];
      draw(); document.getElementById("rows").scrollIntoView();
    } else if (rows.some(r => r.id === target)) {
      opened.add(target);
      if (!chosen().slice(0, state.shown).some(r => r.id === target)) { Object.assign(state, { q: "", verdict: "", kind: "", shown: rows.length }); form.reset(); }
      draw(); document.getElementById(target).scrollIntoView({ block: "center" });
    }
  }
  form.addEventListener("input", () => { for (const key of ["q", "verdict", "kind"]) state[key] = form[key].value; state.shown = PAGE; draw(); remember(); });
  form.addEventListener("submit", e => e.preventDefault());
  more.addEventListener("click", () => { state.shown += PAGE; draw(); });
  document.querySelector("#table thead").addEventListener("click", e => {
    const key = e.target.dataset.sort; if (!key) return;
    state.sort = state.sort === key ? "-" + key : key; draw(); remember();
  });
  body.addEventListener("click", e => {
    const id = e.target.dataset.row; if (!id) return;
    opened.has(id) ? opened.delete(id) : opened.add(id); draw();
    body.querySelector(`[data-row="${CSS.escape(id)}"]`).focus();
  });
  addEventListener("hashchange", follow);
  const up = document.getElementById("up"), pages = document.createElement("script");
  if (up) pages.src = up.getAttribute("href").replace("index.html", "pages.js");
  pages.onload = () => {
    const at = window.hessPages.indexOf(data.name);
    for (const [text, other] of [["Previous", at > 0 && window.hessPages[at - 1]], ["Next", at >= 0 && window.hessPages[at + 1]]])
      if (other) up.closest("ul").insertAdjacentHTML("beforeend", `<li>${text}: <a href="${esc(pages.src.replace("pages.js", other + "/index.html"))}">${esc(other)}</a></li>`);
  };
  if (up) document.head.append(pages);
  const load = document.getElementById("load-stats");
  if (load) load.addEventListener("click", () => {
    const script = document.createElement("script");
    script.src = "stats.js";
    script.onload = () => {
      const { columns, rows: found } = window.hessStats;
      document.getElementById("stats").innerHTML = "<table><thead><tr>" + columns.map(c => `<th scope="col">${esc(c)}</th>`).join("") + "</tr></thead><tbody>" +
        found.map(r => "<tr>" + r.map(v => `<td>${esc(v === "nan" ? "" : v !== "" && !isNaN(v) ? num(Number(v)) : v)}</td>`).join("") + "</tr>").join("") + "</tbody></table>";
      load.remove();
    };
    document.head.append(script);
  });
  const box = document.getElementById("large");
  for (const a of document.querySelectorAll("figure > a")) a.addEventListener("click", e => {
    if (e.ctrlKey || e.metaKey || !box.showModal) return;
    e.preventDefault();
    box.querySelector("img").src = a.href; box.querySelector("img").alt = a.querySelector("img").alt; box.showModal();
  });
  if (box) box.addEventListener("click", () => box.close());
  draw(); follow();
})();
