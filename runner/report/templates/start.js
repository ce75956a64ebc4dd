(() => {
  "use strict";
  const PAGE = 60;
  const rows = Object.entries(window.hessRows || {}).flatMap(([page, [paper, found]]) => found.map(r => [page, r[0], paper, ...r.slice(1)]));
  const GOOD = ["exact match", "reproduced", "confirmed"], BAD = ["not reproduced", "refuted"];
  const NEUTRAL = ["minor error", "calibrated", "true by construction", "not comparable"];
  const tone = v => GOOD.includes(v) ? "good" : BAD.includes(v) ? "bad" : NEUTRAL.includes(v) ? "neutral" : "open";
  const esc = t => String(t).replace(/[&<>"']/g, c => "&#" + c.charCodeAt(0) + ";");
  const maths = t => t.split("\u2061").map((part, i) => i % 2 ? window.hessMaths[part] : esc(part)).join("");
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
  const link = r => `${encodeURIComponent(r[0])}/index.html#${encodeURIComponent(r[1])}`;
  const form = document.getElementById("find"), hits = document.getElementById("hits");
  const phrase = /\b(?:tables?|figs?\.?|figures?|theorems?|lemmas?|sections?|propositions?|eqs?\.?)\s+[a-z]?\.?\d[\d.]*/gi;
  const boundary = text => new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\s+/, "s?\\.?\\s+") + "(?![\\d.]*\\d)", "i");
  function search() {
    const q = form.q.value.trim(), asked = (q.match(phrase) || []).map(boundary);
    const words = q.replace(phrase, " ").toLowerCase().split(/\s+/).filter(Boolean);
    const found = q ? rows.filter(r => asked.every(p => p.test(r[4])) && words.every(w => r.join(" ").replaceAll("\u2061", "").toLowerCase().includes(w))) : [];
    const verdicts = {};
    for (const r of found) verdicts[r[5]] = (verdicts[r[5]] || 0) + 1;
    const sentence = asked.length && found.length ? answer(q, verdicts) + " " : "";
    form.querySelector("output").textContent = q ? `${sentence}${found.length} rows: ` + Object.entries(verdicts).map(([v, n]) => `${n} ${v}`).join(", ") : "";
    hits.innerHTML = found.slice(0, PAGE).map(r => `<li><a href="${link(r)}">${maths(r[3])}</a> <span class="small">${esc(r[2])}, ${esc(r[4])}; ${esc(r[0])}</span> <b class="${tone(r[5])}">${esc(r[5])}</b></li>`).join("");
  }
  form.addEventListener("input", search);
  form.addEventListener("submit", e => e.preventDefault());
  const wanted = new URLSearchParams(location.search).get("q");
  if (wanted) { form.q.value = wanted; search(); document.getElementById("search").scrollIntoView(); }
  const which = document.getElementById("which"), plot = document.getElementById("plot"), W = 640, H = 460, L = 60;
  const shapes = { good: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", bad: "M-4 -4L4 4M-4 4L4 -4", neutral: "M-4 -4H4V4H-4Z", open: "M0 -5L5 4H-5Z" };
  function draw() {
    const shown = rows.filter(r => r[6] && r[7] && (!which.value || r[2] === which.value)).map(r => [r, Math.log10(Math.abs(r[6])), Math.log10(Math.abs(r[7]))]);
    if (!shown.length) { plot.textContent = "No published number with a measured value."; return; }
    const all = shown.flatMap(s => [s[1], s[2]]), lo = Math.floor(Math.min(...all)), hi = Math.max(lo + 1, Math.ceil(Math.max(...all)));
    const x = v => L + (W - L - 10) * (v - lo) / (hi - lo), y = v => H - 40 - (H - 50) * (v - lo) / (hi - lo);
    const step = Math.max(1, Math.ceil((hi - lo) / 8));
    let svg = `<svg viewBox="0 0 ${W} ${H}" width="${W}" role="group" aria-label="${shown.length} published numbers against measured ones">`;
    for (let t = lo; t <= hi; t += step) svg += `<path d="M${x(t)} 10V${H - 40}M${L} ${y(t)}H${W - 10}" stroke="var(--line)"/><text x="${x(t)}" y="${H - 24}" text-anchor="middle">1e${t}</text><text x="${L - 6}" y="${y(t) + 4}" text-anchor="end">1e${t}</text>`;
    svg += `<path d="M${x(lo)} ${y(lo)}L${x(hi)} ${y(hi)}" stroke="currentColor" stroke-dasharray="4 3"/>`;
    for (const [r, a, b] of shown) svg += `<a href="${link(r)}"><path class="${tone(r[5])}" d="${shapes[tone(r[5])]}" transform="translate(${x(a)} ${y(b)})" fill="currentColor" fill-opacity=".35" stroke="currentColor"><title>${esc(r[3].replaceAll("\u2061", ""))}, ${esc(r[4])}: published ${r[6]}, measured ${r[7]}, ${esc(r[5])}</title></path></a>`;
    plot.innerHTML = svg + `<text x="${W / 2}" y="${H - 6}" text-anchor="middle">published</text><text x="14" y="${H / 2}" text-anchor="middle" transform="rotate(-90 14 ${H / 2})">measured</text></svg>`;
  }
  which.addEventListener("change", draw);
  draw();
})();
