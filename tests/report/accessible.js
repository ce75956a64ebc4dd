/* Faults of the page for those who do not see it well: names, headings, landmarks, contrast (WCAG 2.2, level AA). */
const faults = [];
const all = selector => [...document.querySelectorAll(selector)].filter(e => e.checkVisibility());

if (!document.documentElement.lang) faults.push("no language");
if (!document.title) faults.push("no title");
if (all("main").length !== 1) faults.push(`${all("main").length} elements main`);
if (all("h1").length !== 1) faults.push(`${all("h1").length} elements h1`);

let level = 0;
for (const heading of all("main :is(h1, h2, h3, h4, h5, h6), h1, h3")) {
  const next = Number(heading.tagName[1]);
  if (next > level + 1) faults.push(`${heading.tagName} after h${level}: ${heading.textContent}`);
  level = next;
}
const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push(`two elements with id ${id}`);

for (const image of all("img")) if (!image.hasAttribute("alt")) faults.push(`IMG without alt: ${image.src}`);
for (const element of all("a[href], button, input, select, [role=region]")) {
  if (element.closest("[aria-hidden=true]")) continue;
  const label = [...(element.labels || [])].map(l => l.textContent).join("");
  const image = element.querySelector("img[alt]");
  const name = element.getAttribute("aria-label") || label || element.textContent || (image && image.alt);
  if (!name || !name.trim()) faults.push(`${element.tagName} without a name: ${element.outerHTML.slice(0, 80)}`);
}

const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
function rgba(color) {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = color;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
}
function luminance(color) {
  const linear = rgba(color).slice(0, 3).map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}
function background(element) {
  for (let e = element; e; e = e.parentElement) {
    const color = getComputedStyle(e).backgroundColor;
    if (rgba(color)[3] === 255) return color;
  }
  return "rgb(255, 255, 255)";
}
for (const element of all("body *")) {
  const text = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
  if (!text || ["SCRIPT", "STYLE", "OPTION"].includes(element.tagName)) continue;
  const style = getComputedStyle(element), color = element.closest("svg") ? style.fill : style.color;
  const [high, low] = [luminance(color), luminance(background(element))].sort((a, b) => b - a);
  const contrast = (high + 0.05) / (low + 0.05);
  const wanted = parseFloat(style.fontSize) >= 24 ? 3 : 4.5;
  if (contrast < wanted) faults.push(`contrast ${contrast.toFixed(1)} of ${element.tagName}: ${element.textContent.trim().slice(0, 40)}`);
}
return faults;
