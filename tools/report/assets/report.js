"use strict";
// The claims' filter and the explorer. No library: the chart is SVG, made anew for every choice.

const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
const chosen = (box) => [...box.querySelectorAll("input:checked")].map((input) => input.value);

// ---- Numbers -----------------------------------------------------------------------------------------------------

// Mean and Student's 95 % interval of the values that are there; quantiles[n - 2] is the one for n seeds.
function interval(values, quantiles) {
  const there = values.filter((value) => value !== null);
  const seeds = there.length;
  if (!seeds) return null;
  const mean = there.reduce((sum, value) => sum + value, 0) / seeds;
  if (seeds === 1) return { mean, low: null, high: null, seeds };
  const square = there.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  const half = quantiles[seeds - 2] * Math.sqrt(square / (seeds - 1) / seeds);
  return { mean, low: mean - half, high: mean + half, seeds };
}

// One method's metric, [seed][round]; null where undefined. Values travel as whole numbers of 16 or 24 bits, times a scale.
const unpacked = new Map();
function values(track, method, metric) {
  const key = [track, method, metric].join(" ");
  if (!unpacked.has(key)) {
    const { seeds, rounds } = data.tracks[track];
    const { width, scale, packed } = data.tracks[track].values[method][metric];
    const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
    const unused = 32 - 8 * width;
    const value = (place) => {
      let number = 0;
      for (let i = 0; i < width; i += 1) number |= bytes[width * place + i] << (8 * i + unused);
      number >>= unused;
      return number === -(2 ** (8 * width - 1)) ? null : number * scale;
    };
    unpacked.set(key, seeds.map((_, s) => rounds.map((__, r) => value(s * rounds.length + r))));
  }
  return unpacked.get(key);
}

// One interval per round, of one method's metric over some seeds of a track.
function curve(track, method, metric, seeds) {
  const table = values(track, method, metric);
  const rows = seeds.map((seed) => table[data.tracks[track].seeds.indexOf(seed)]);
  return data.tracks[track].rounds.map((_, i) => interval(rows.map((row) => row[i]), data.quantiles));
}

const shown = (value) => (Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : value.toFixed(3));

// Round numbers that divide low..high into about `count` steps.
function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i += 1) found.push(i * step);
  return { step, found };
}

// ---- Chart -------------------------------------------------------------------------------------------------------

// Single runs that a row of the table lists; there may be 150.
const MOST_SINGLE = 20;
const REFERENCE_DASHES = ["6 4", "2 3", "8 3 2 3"];

function svg(name, attributes, ...inside) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...inside);
  return element;
}

// Pieces of a line: what is undefined leaves a gap.
function pieces(points) {
  const found = [[]];
  for (const point of points) {
    if (point === null) found.push([]);
    else found[found.length - 1].push(point);
  }
  return found.filter((piece) => piece.length);
}

const path = (points) => "M" + points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join("L");

function draw(choice) {
  const box = find("chart");
  const { track, metric, curves, references } = choice;
  const rounds = data.tracks[track].rounds;
  const limits = data.metrics[metric];
  const clip = (value) => Math.min(limits.high ?? value, Math.max(limits.low ?? value, value));
  const width = Math.max(box.clientWidth, 280);
  const height = Math.round(Math.min(440, Math.max(300, width * 0.45)));
  const seen = references.map((line) => line.value);
  for (const { points, runs, paper } of curves) {
    if (paper !== null) seen.push(paper);
    for (const p of points) if (p) seen.push(p.mean, ...(p.low === null ? [] : [clip(p.low), clip(p.high)]));
    for (const run of runs) seen.push(...run.filter((value) => value !== null));
  }
  if (!seen.length) {
    box.replaceChildren(Object.assign(document.createElement("p"), { textContent: "Nothing chosen." }));
    return;
  }
  let [low, high] = [Math.min(...seen), Math.max(...seen)];
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  [low, high] = [low - room, high + room];
  const scale = ticks(low, high, 7);
  const digits = Math.max(0, -Math.floor(Math.log10(scale.step) + 1e-9));
  const label = (value) => (scale.step >= 1 ? Math.round(value).toLocaleString("en") : value.toFixed(digits));
  const left = 16 + 7.5 * Math.max(...scale.found.map((value) => label(value).length));
  const area = { left, right: width - 14, top: 28, bottom: height - 40 };
  const [first, last] = [rounds[0], rounds[rounds.length - 1]];
  const x = (round) => area.left + ((round - first) / (last - first || 1)) * (area.right - area.left);
  const y = (value) => area.bottom - ((value - low) / (high - low)) * (area.bottom - area.top);

  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": choice.said });
  for (const value of scale.found) {
    chart.append(svg("line", { class: "grid", x1: area.left, x2: area.right, y1: y(value), y2: y(value) }));
    chart.append(svg("text", { x: area.left - 6, y: y(value) + 4, "text-anchor": "end" }, label(value)));
  }
  const steps = ticks(first, last, Math.min(rounds.length, width / 60)).found.filter(Number.isInteger);
  for (const round of steps) {
    chart.append(svg("line", { class: "grid", x1: x(round), x2: x(round), y1: area.top, y2: area.bottom }));
    chart.append(svg("text", { x: x(round), y: area.bottom + 17, "text-anchor": "middle" }, String(round)));
  }
  const better = limits.better ? `, ${limits.better} is better` : "";
  chart.append(svg("text", { x: area.left, y: 16, class: "title" }, limits.title + better));
  chart.append(svg("text", { x: (area.left + area.right) / 2, y: height - 6, "text-anchor": "middle" }, "round"));
  references.forEach((line, i) => {
    const at = { x1: area.left, x2: area.right, y1: y(line.value), y2: y(line.value) };
    chart.append(svg("line", { class: "reference", "stroke-dasharray": REFERENCE_DASHES[i % 3], ...at }));
  });
  for (const { method, points, runs, paper } of curves) {
    const { colour, dashes } = data.methods[method];
    const band = points.map((p, i) => (p && p.low !== null ? [x(rounds[i]), y(clip(p.low)), y(clip(p.high))] : null));
    for (const piece of pieces(band)) {
      const around = [...piece.map(([at, down]) => [at, down]), ...piece.map(([at, , up]) => [at, up]).reverse()];
      chart.append(svg("path", { class: "band", d: path(around) + "Z", fill: colour }));
    }
    for (const run of runs) {
      const line = run.map((value, i) => (value === null ? null : [x(rounds[i]), y(value)]));
      for (const piece of pieces(line)) chart.append(svg("path", { class: "run", d: path(piece), stroke: colour }));
    }
    const line = points.map((p, i) => (p ? [x(rounds[i]), y(p.mean)] : null));
    for (const piece of pieces(line)) {
      const look = { stroke: colour, "stroke-dasharray": dashes, "data-method": method };
      chart.append(svg("path", { class: "mean", d: path(piece), ...look }));
      for (const [cx, cy] of piece) chart.append(svg("circle", { cx, cy, r: 2.4, fill: colour }));
    }
    if (paper !== null) {
      const [tip, at] = [x(last) - 7, y(paper)];
      const corners = `${tip},${at} ${tip + 11},${at - 6} ${tip + 11},${at + 6}`;
      chart.append(svg("polygon", { class: "paper", points: corners, fill: colour, "data-paper": method }));
    }
  }
  const at = x(rounds[choice.place]);
  chart.append(svg("line", { class: "cursor", x1: at, x2: at, y1: area.top, y2: area.bottom }));
  chart.addEventListener("pointermove", (event) => {
    const place = event.clientX - chart.getBoundingClientRect().left;
    const nearest = rounds.reduce((best, r, i) => (Math.abs(x(r) - place) < Math.abs(x(rounds[best]) - place) ? i : best), 0);
    if (nearest !== Number(find("round").value)) {
      find("round").value = nearest;
      redraw();
    }
  });
  box.replaceChildren(chart);
}

// ---- Choosing ----------------------------------------------------------------------------------------------------

function choices(box, options) {
  const before = box.childElementCount ? new Set(chosen(box)) : null;
  box.replaceChildren(
    ...options.map(({ value, text, checked, mark }) => {
      const input = Object.assign(document.createElement("input"), { type: "checkbox", value });
      input.checked = before ? before.has(value) : checked;
      const label = Object.assign(document.createElement("label"), { className: "check" });
      label.append(input, ...(mark ? [mark] : []), " " + text);
      return label;
    }),
  );
  if (!chosen(box).length) box.querySelectorAll("input").forEach((input) => (input.checked = true));
}

function mark(method) {
  const { colour, dashes } = data.methods[method];
  const line = { x1: 0, x2: 26, y1: 6, y2: 6, stroke: colour, "stroke-dasharray": dashes };
  return svg("svg", { class: "mark", width: 26, height: 12, "aria-hidden": "true" }, svg("line", line));
}

// What a track offers; choices that it offers too are kept.
function offer() {
  const track = data.tracks[find("track").value];
  const first = ["duqfl-prox", "fedprox-qfl", "default-qfl"];
  const methods = Object.keys(track.values);
  const options = methods.map((value) => ({ value, text: data.methods[value].label, mark: mark(value) }));
  choices(find("methods"), options.map((option) => ({ ...option, checked: first.includes(option.value) })));
  choices(find("seeds"), track.seeds.map((seed) => ({ value: String(seed), text: String(seed), checked: true })));
  find("round").max = track.rounds.length - 1;
  find("round").value = track.rounds.length - 1;
}

function redraw() {
  const [track, metric] = [find("track").value, find("metric").value];
  const here = data.tracks[track];
  const seeds = chosen(find("seeds")).map(Number);
  const place = Number(find("round").value);
  const of = (method, seed) => values(track, method, metric)[here.seeds.indexOf(seed)];
  const paper = here.paper[metric] ?? {};
  const curves = chosen(find("methods")).map((method) => ({
    method,
    points: curve(track, method, metric, seeds),
    paper: paper[method] ?? null,
    runs: find("single-runs").checked ? seeds.map((seed) => of(method, seed)) : [],
  }));
  const models = find("references").checked ? here.references[data.metrics[metric].reference] ?? {} : {};
  const references = Object.entries(models)
    .map(([name, values]) => ({ name, found: interval(seeds.map((s) => values[here.seeds.indexOf(s)]), data.quantiles) }))
    .filter((line) => line.found)
    .map((line) => ({ name: line.name, value: line.found.mean, seeds: line.found.seeds }));
  const ends = curves.map(({ method, points }) => [data.methods[method].label, points[place]]);
  const told = ends.map(([label, p]) => `${label} ${p ? shown(p.mean) : "undefined"}`).join(", ");
  const said = `${data.metrics[metric].title} over rounds, ${track}. Round ${here.rounds[place]}: ${told}`;
  draw({ track, metric, curves, references, place, said });

  find("explorer-facts").textContent = here.facts;
  find("round-shown").textContent = here.rounds[place];
  find("round").setAttribute("aria-valuetext", `round ${here.rounds[place]}`);
  const cell = (text, kind = "td") => Object.assign(document.createElement(kind), { textContent: text });
  const rows = curves.map(({ method, points, paper }) => {
    const [p, row] = [points[place], document.createElement("tr")];
    const head = cell(" " + data.methods[method].label, "th");
    head.scope = "row";
    head.prepend(mark(method));
    const between = p && p.low !== null ? `${shown(p.low)} to ${shown(p.high)}` : "";
    const single = seeds.map((seed) => of(method, seed)[place]).map((value) => (value === null ? "–" : shown(value)));
    const some = single.length > MOST_SINGLE ? [...single.slice(0, MOST_SINGLE), "…"] : single;
    const numbers = [p ? shown(p.mean) : "–", between, paper === null ? "" : shown(paper), p ? p.seeds : 0];
    row.append(head, ...numbers.map((text) => cell(text)), cell(some.join("  ")));
    return row;
  });
  const lines = references.map((line, i) => {
    const row = document.createElement("tr");
    const head = cell(" " + line.name, "th");
    head.scope = "row";
    const look = { class: "reference", x1: 0, x2: 26, y1: 6, y2: 6, "stroke-dasharray": REFERENCE_DASHES[i % 3] };
    head.prepend(svg("svg", { class: "mark", width: 26, height: 12, "aria-hidden": "true" }, svg("line", look)));
    row.append(head, cell(shown(line.value)), cell(""), cell(""), cell(line.seeds), cell("reference, on the same angles"));
    return row;
  });
  find("values").tBodies[0].replaceChildren(...rows, ...lines);
}

function start() {
  const option = (value, text) => Object.assign(document.createElement("option"), { value, textContent: text });
  find("track").append(...Object.entries(data.tracks).map(([name, track]) => option(name, track.label)));
  find("metric").append(...Object.entries(data.metrics).map(([name, metric]) => option(name, metric.title)));
  offer();
  redraw();
  find("track").addEventListener("change", offer);
  find("chooser").addEventListener("change", redraw);
  find("chooser").addEventListener("submit", (event) => event.preventDefault());
  find("round").addEventListener("input", redraw);
  const check = (keep) => () => {
    find("seeds").querySelectorAll("input").forEach((input, i) => (input.checked = keep(i)));
    redraw();
  };
  find("all-seeds").addEventListener("click", check(() => true));
  find("one-seed").addEventListener("click", check((i) => i === 0));
  let width = find("chart").clientWidth;
  new ResizeObserver(() => {
    if (find("chart").clientWidth !== width) {
      width = find("chart").clientWidth;
      redraw();
    }
  }).observe(find("chart"));

  const tiles = [...document.querySelectorAll(".tile")];
  const filter = () => {
    const wanted = tiles.filter((tile) => tile.getAttribute("aria-pressed") === "true").map((t) => t.dataset.verdict);
    for (const claim of document.querySelectorAll(".claim")) {
      claim.hidden = wanted.length > 0 && !wanted.includes(claim.dataset.verdict);
    }
  };
  for (const tile of tiles) {
    tile.addEventListener("click", () => {
      tile.setAttribute("aria-pressed", String(tile.getAttribute("aria-pressed") !== "true"));
      filter();
    });
  }
}

start();
