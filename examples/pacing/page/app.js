// Draws what the server says about a flood, while it happens. The server sends server-sent events; see stream in
// server.go for what they hold. Times are milliseconds from the start of the flood.

const svgNS = "http://www.w3.org/2000/svg";
const markWidth = 2.6;
const form = document.getElementById("controls");
const status = document.getElementById("status");
const list = document.getElementById("lanes");
const arrivals = document.getElementById("arrivals");

let source = null; // the flood that is being drawn
let runs = 0;
let plan = null; // what the start message said
let lanes = []; // {about, groups, grants, pauses, errors, strip, words, dirty}
let began = 0; // by this page's clock
let over = true;

// Settings.

function showValues() {
  for (const out of form.querySelectorAll("output")) {
    const input = document.getElementById(out.htmlFor.value);
    out.textContent = input.value + out.dataset.unit;
    input.setAttribute("aria-valuetext", out.textContent);
  }
}

function query() {
  return new URLSearchParams(new FormData(form)).toString();
}

// A slider that is being dragged starts one flood when it comes to rest, not one for each step.
let resting = 0;
form.addEventListener("input", () => {
  showValues();
  clearTimeout(resting);
  resting = setTimeout(restart, 150);
});
form.addEventListener("submit", (e) => {
  e.preventDefault();
  restart();
});

// The flood.

function restart() {
  clearTimeout(resting);
  if (source) source.close();
  const settings = query();
  history.replaceState(null, "", "?" + settings); // the address brings back the same settings
  const run = ++runs;
  document.body.dataset.state = "starting";
  status.textContent = "starting";
  source = new EventSource("flood?" + settings);
  const on = (name, f) => source.addEventListener(name, (e) => run === runs && f(JSON.parse(e.data)));
  on("start", start);
  on("grant", (m) => change(m.lane).grants.push(m));
  on("pause", (m) => change(m.lane).pauses.push(m));
  on("refusal", (m) => change(m.lane).errors.push(m.error));
  on("end", () => {
    source.close(); // or it would connect again, and start another flood
    finish("");
  });
  source.onerror = () => {
    if (run !== runs) return;
    source.close();
    finish("The server does not answer. Is it still running? Restart tries again.");
  };
}

function start(message) {
  plan = message;
  began = performance.now();
  over = false;
  list.replaceChildren();
  lanes = plan.lanes.map((l) => {
    const item = element("li", "lane");
    item.id = "lane-" + l.id;
    const words = element("div", "words");
    const name = element("h2", "", l.name);
    name.id = "name-" + l.id;
    const count = element("p", "count");
    const strip = document.createElementNS(svgNS, "svg");
    strip.setAttribute("class", "strip");
    strip.setAttribute("role", "img");
    strip.setAttribute("aria-labelledby", name.id);
    words.append(name, element("p", "", l.about), count);
    item.append(words, strip);
    list.append(item);
    return { groups: l.groups || [], grants: [], pauses: [], errors: [], words, count, strip, dirty: true };
  });
  arrivals.hidden = false;
  document.body.dataset.state = "running";
  status.textContent = "running";
  document.body.dataset.run = runs;
  for (const l of lanes) watcher.observe(l.strip);
  drawArrivals();
  requestAnimationFrame(frame);
}

function change(n) {
  lanes[n].dirty = true;
  return lanes[n];
}

function finish(problem) {
  over = true;
  for (const l of lanes) l.dirty = true;
  redraw();
  document.body.dataset.state = problem ? "failed" : "done";
  status.textContent = problem || "done; move a slider or press Restart to see it again";
}

// Drawing.

const still = matchMedia("(prefers-reduced-motion: reduce)");

function frame() {
  redraw();
  if (over) return;
  const now = performance.now() - began;
  for (const l of lanes) {
    const line = l.strip.querySelector(".now");
    const at = x(l.width, now);
    if (!line) continue;
    line.setAttribute("x1", at);
    line.setAttribute("x2", at);
  }
  requestAnimationFrame(frame);
}

function redraw() {
  for (const l of lanes) {
    if (l.dirty) drawLane(l);
  }
}

const watcher = new ResizeObserver(() => {
  for (const l of lanes) l.dirty = true;
  if (!plan) return;
  redraw();
  drawArrivals();
});
watcher.observe(arrivals);

const left = 18; // room for the names of groups
const right = 12;

// What comes after the end, as a pause may, or a grant of the last moment that its caller noticed late, is at the end.
function x(width, at) {
  return left + ((width - left - right) * Math.min(at, plan.horizon)) / plan.horizon;
}

function drawArrivals() {
  const strip = arrivals.querySelector("svg");
  const { width, height } = size(strip);
  strip.replaceChildren();
  const every = width < 480 ? 2000 : 1000;
  for (let t = 0; t <= plan.horizon; t += every) {
    text(strip, x(width, t), height - 4, "mid", t / 1000 + " s");
  }
  plan.waves.forEach((w, i) => {
    const at = x(width, w.at);
    add(strip, "path", { class: "arrow", d: `M${at} ${height - 16} l-5 -9 h10 z` });
    text(strip, at + 9, height - 18, "", width < 480 ? `${w.n} requests` : `${w.n} requests arrive at once`);
  });
  strip.setAttribute("aria-label", plan.waves.map((w) => `${w.n} requests arrive at ${w.at / 1000} s`).join(", "));
}

function drawLane(l) {
  l.dirty = false;
  const { width, height } = size(l.strip);
  l.width = width;
  l.strip.replaceChildren();
  for (const p of l.pauses) {
    const from = x(width, p.at);
    const until = x(width, p.until);
    add(l.strip, "rect", { class: "pause", x: from, y: 1, width: until - from, height: height - 2 });
  }
  for (let t = 0; t <= plan.horizon; t += 1000) vertical(l.strip, "grid", x(width, t), height);
  for (const w of plan.waves) vertical(l.strip, "wave", x(width, w.at), height);
  for (const p of l.pauses) {
    const middle = (x(width, p.at) + x(width, p.until)) / 2;
    text(l.strip, middle, height / 2 + 4, "pausetext", "pause");
  }
  const rows = Math.max(l.groups.length, 1);
  const room = height - 16;
  for (let g = 0; g < rows; g++) {
    const base = height - 8 - (room / rows) * (rows - 1 - g);
    if (l.groups.length) text(l.strip, left - 6, base - 3, "last", l.groups[g]);
    drawMarks(l, g, width, base, room / rows - 2);
  }
  if (!over && !still.matches) vertical(l.strip, "now", x(width, performance.now() - began), height);
  describe(l);
}

// Grants that would lie on one another are one mark, the taller the more they are.
function drawMarks(l, group, width, base, height) {
  const grants = l.grants.filter((g) => g.group === group).sort((a, b) => a.at - b.at);
  for (let i = 0, n; i < grants.length; i += n) {
    const first = grants[i];
    const at = x(width, first.at);
    n = 1;
    while (i + n < grants.length && x(width, grants[i + n].at) - at <= markWidth && !grants[i + n].throttled === !first.throttled) n++;
    // In a lane of several rows there is no room for more than one height.
    const h = l.groups.length ? height : height * (0.5 + 0.5 * Math.min((n - 1) / 9, 1));
    add(l.strip, "rect", {
      class: "mark " + (first.throttled ? "no" : "g" + group),
      x: at, y: base - h, width: markWidth, height: h, rx: 0.8, "data-n": n,
    });
    if (n >= 3 && !l.groups.length) text(l.strip, at + 5, base - height + 9, "", "×" + n);
  }
}

// What the picture shows, in words.
function describe(l) {
  const total = plan.waves.reduce((n, w) => n + w.n, 0);
  const times = l.grants.map((g) => g.at).sort((a, b) => a - b);
  let said = `${times.length} of ${total} granted`;
  if (times.length) said += `, at most ${mostIn(1000, times)} in any second`;
  if (times.length === total) said += `, done at ${(times[total - 1] / 1000).toFixed(1)} s`;
  else if (over && !l.errors.length) said += `, ${total - times.length} still waited at the end`;
  l.count.textContent = said;
  if (l.errors.length && !l.words.querySelector(".error")) l.words.append(element("p", "error", "refused: " + l.errors[0]));
}

function mostIn(period, times) {
  let most = 0;
  for (let from = 0, to = 0; to < times.length; to++) {
    while (Math.round((times[to] - times[from]) * 1000) >= period * 1000) from++; // they are whole microseconds
    most = Math.max(most, to - from + 1);
  }
  return most;
}

// Helpers.

function size(strip) {
  const box = strip.getBoundingClientRect();
  strip.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
  return box;
}

function element(tag, className, content) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (content) e.textContent = content;
  return e;
}

function add(parent, tag, attributes) {
  const e = document.createElementNS(svgNS, tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  parent.append(e);
  return e;
}

function text(parent, atX, y, className, content) {
  if (content) add(parent, "text", { x: atX, y, class: className }).textContent = content;
}

function vertical(parent, className, at, height) {
  add(parent, "line", { class: className, x1: at, x2: at, y1: 0, y2: height });
}

for (const [name, value] of new URLSearchParams(location.search)) {
  const input = form.elements[name];
  if (input && input.type === "range") input.value = value;
}
showValues();
restart();
