// What makes the page interactive: plots with values, zoom and a key; tables that sort, filter and page.
// Texts enter the page as text only (textContent, setAttribute), never as markup.
"use strict";
(() => {
const SVG = "http://www.w3.org/2000/svg";
const SHAPES = {
  cross: "M-5,-3.4L-3.4,-5L0,-1.6L3.4,-5L5,-3.4L1.6,0L5,3.4L3.4,5L0,1.6L-3.4,5L-5,3.4L-1.6,0Z",
  dot: "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0Z",
  ring: "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0Z",
  arrow: "M-3.5,-4.5L5,0L-3.5,4.5Z",
  diamond: "M0,-5.4L5.4,0L0,5.4L-5.4,0Z",
};
const PAGE = 50, PAGED_FROM = 60, FILTERED_FROM = 12, REACH = 28;
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const made = (tag, attributes = {}, text = null) => fill(document.createElement(tag), attributes, text);
const drawn = (tag, attributes = {}, text = null) => fill(document.createElementNS(SVG, tag), attributes, text);
function fill(element, attributes, text) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  return element;
}

// ---------------------------------------------------------------- figures with units
function unitOf(axis) {
  if (axis.kind === "bytes") return axis.high >= 2 ** 30 ? [2 ** 30, "GiB"] : [2 ** 20, "MiB"];
  return axis.kind === "seconds" ? [1, "s"] : axis.kind === "share" ? [0.01, "%"] : [1, ""];
}
function figure(value, digits = 4) {
  if (value !== 0 && Math.abs(value) < 1e-5) return value.toExponential(1);
  return Number(value.toPrecision(digits)).toLocaleString("en-US", { maximumFractionDigits: 8 });
}
function amount(axis, value) {
  if (axis.kind === "bytes") {
    const [factor, name] = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [1024, "KiB"]].find(([size]) => value >= size) || [1, "B"];
    return `${(value / factor).toFixed(value >= 10 * factor ? 1 : 2)} ${name}`;
  }
  const [factor, name] = unitOf(axis);
  return axis.kind === "steps" ? `step ${figure(Math.floor(value), 12)}` : `${figure(value / factor)} ${name}`.trim();
}
function ticks(low, high, most) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(part => part * power >= rough);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high * (1 + 1e-9); at++) found.push(Number((at * step).toPrecision(12)));
  return found;
}
const logarithm = value => value <= 1 ? value : 1 + Math.log10(value);
const power = value => value <= 1 ? value : 10 ** (value - 1);

// ---------------------------------------------------------------- one tooltip for the page
const tip = made("div", { class: "tip", hidden: "" });
document.body.append(tip);
function showTip(lines, x, y) {
  tip.replaceChildren(...lines.map(text => made("div", {}, text)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect(), wide = document.documentElement.clientWidth;
  tip.style.left = `${clamp(x + 14, 4, Math.max(4, wide - box.width - 4)) + scrollX}px`;
  tip.style.top = `${(y + box.height + 20 > innerHeight ? y - box.height - 12 : y + 14) + scrollY}px`;
}
const hideTip = () => { tip.hidden = true; };
addEventListener("keydown", event => { if (event.key === "Escape") hideTip(); });

// ---------------------------------------------------------------- plots
class Chart {
  constructor(holder, data) {
    this.data = data;
    this.hidden = new Set();
    this.whole = { x0: data.x.low, x1: data.x.high, y0: data.y.low, y1: data.y.high };
    this.view = { ...this.whole };
    this.rows = data.y.kind === "rows";
    this.at = -1;
    this.clip = `clip-${data.name}`;
    this.box = made("div", { class: "chart" });
    this.svg = drawn("svg", { tabindex: "0", role: "img", "aria-label": `${data.alt} Arrow keys read values, plus and minus zoom, 0 shows all.` });
    this.live = made("p", { class: "unseen", "aria-live": "polite" });
    this.box.append(this.bar(), this.svg, this.live);
    holder.before(this.box);
    this.listen();
    this.draw();
    new ResizeObserver(() => { if (this.box.clientWidth !== this.width && this.box.clientWidth > 0) this.draw(); }).observe(this.box);
  }

  // the key, each entry a switch, and the zoom
  bar() {
    const bar = made("div", { class: "bar" });
    for (const group of this.groups()) {
      const button = made("button", { type: "button", "aria-pressed": "true", class: `key hue-${group.hue}`, title: "show or hide" });
      const look = drawn("svg", { width: 18, height: 12, viewBox: "-9 -6 18 12", "aria-hidden": "true" });
      look.append(this.sample(group));
      button.append(look, made("span", {}, group.name));
      button.addEventListener("click", () => {
        const off = !this.hidden.delete(group.name) && this.hidden.add(group.name);
        button.setAttribute("aria-pressed", String(!off));
        this.draw();
      });
      bar.append(button);
    }
    const zoom = made("span", { class: "zoom" });
    const actions = [["−", "zoom out", () => this.zoom(2)], ["+", "zoom in", () => this.zoom(0.5)], ["all", "show all", () => this.reset()]];
    for (const [text, name, act] of actions) {
      const button = made("button", { type: "button", "aria-label": `${name}: ${this.data.name}`, title: name }, text);
      button.addEventListener("click", act);
      zoom.append(button);
    }
    bar.append(zoom);
    return bar;
  }
  groups() {
    const curves = this.data.curves.filter(curve => curve.listed).slice().reverse();
    const pale = this.data.curves.filter(curve => !curve.listed);
    const others = [["died", "others that died"], ["survived", "others that survived"]]
      .filter(([hue]) => pale.some(curve => curve.hue === hue))
      .map(([hue, name]) => ({ name, hue, pale: true }));
    return [...curves, ...others, ...this.data.bars, ...this.data.marks.filter(group => group.listed)];
  }
  sample(group) {
    if (group.shape) return drawn("path", { d: SHAPES[group.shape], class: `mark ${group.shape}` });
    if (group.bars || group.filled) return drawn("rect", { x: -7, y: -5, width: 14, height: 10, class: "area" });
    return drawn("path", { d: "M-9,0H9", class: `curve${group.dashed ? " dashed" : ""}${group.pale ? " pale" : ""}` });
  }
  shows(group) {
    const name = group.listed === false && group.xs ? `others that ${group.hue}` : group.name;
    return !this.hidden.has(name);
  }

  // places
  forward(value) { return this.data.x.logarithmic ? logarithm(value) : value; }
  px(value) {
    const { x0, x1 } = this.view, from = this.forward(x0);
    return this.left + (this.forward(value) - from) / (this.forward(x1) - from) * this.plotWidth;
  }
  py(value) {
    if (this.rows) return this.top + (value + 0.75) * this.rowHeight;
    return this.top + this.plotHeight - (value - this.view.y0) / (this.view.y1 - this.view.y0) * this.plotHeight;
  }
  unx(pixel) {
    const { x0, x1 } = this.view, from = this.forward(x0), value = from + (pixel - this.left) / this.plotWidth * (this.forward(x1) - from);
    return this.data.x.logarithmic ? power(value) : value;
  }
  uny(pixel) { return this.view.y0 + (this.top + this.plotHeight - pixel) / this.plotHeight * (this.view.y1 - this.view.y0); }

  draw() {
    this.width = this.box.clientWidth;
    this.rowHeight = 36;
    this.left = this.rows ? 6 : this.data.y.kind === "number" ? 78 : 62;
    this.top = this.data.top.length ? 44 : 12;
    this.plotWidth = Math.max(80, this.width - this.left - 14);
    this.plotHeight = this.rows ? this.rowHeight * (this.data.y.rows.length + 0.25) : 300;
    const height = this.top + this.plotHeight + 44;
    fill(this.svg, { viewBox: `0 0 ${this.width} ${height}`, height });
    this.points = [];
    const clip = drawn("clipPath", { id: this.clip });
    clip.append(drawn("rect", { x: this.left, y: this.top - 8, width: this.plotWidth + 8, height: this.plotHeight + 10 }));
    this.inside = drawn("g", { "clip-path": `url(#${this.clip})` });
    this.frame = drawn("g");
    this.svg.replaceChildren(clip, this.frame, this.inside);
    this.axes();
    this.data.curves.forEach(curve => this.shows(curve) && this.curve(curve));
    this.data.bars.forEach(group => this.shows(group) && this.bars(group));
    this.data.rules.forEach(rule => this.rule(rule));
    this.data.marks.forEach(group => this.shows(group) && this.marks(group));
    this.data.notes.forEach((note, row) => this.frame.append(drawn("text", { x: this.left + 6, y: this.top + 12 + 15 * row, class: "note" }, note)));
    this.points.sort((one, other) => one.x - other.x || one.y - other.y);
    this.cursor = drawn("g", { class: "cursor" });
    this.svg.append(this.cursor);
  }
  axes() {
    const { x, y } = this.data, bottom = this.top + this.plotHeight;
    const write = (text, attributes) => this.frame.append(drawn("text", attributes, text));
    for (const value of this.xTicks()) {
      const at = this.px(value);
      this.frame.append(drawn("path", { d: `M${at},${this.top}V${bottom}`, class: "grid" }));
      write(figure(value / unitOf(x)[0], 12), { x: at, y: bottom + 17, "text-anchor": "middle" });
    }
    const label = axis => axis.label + (unitOf(axis)[1] ? ` (${unitOf(axis)[1]}${axis.logarithmic ? ", logarithmic" : ""})` : axis.logarithmic ? " (logarithmic)" : "");
    write(label(x), { x: this.left + this.plotWidth / 2, y: bottom + 36, "text-anchor": "middle", class: "label" });
    for (const [place, text] of this.spread(this.data.top)) write(text, { x: place, y: this.top - 8, "text-anchor": "middle" });
    if (this.data.top.length) write(this.data.topLabel, { x: this.left + this.plotWidth / 2, y: this.top - 28, "text-anchor": "middle", class: "label" });
    if (this.rows) {
      y.rows.forEach((name, row) => {
        this.frame.append(drawn("path", { d: `M${this.left},${this.py(row)}h${this.plotWidth}`, class: "grid" }));
        const most = Math.floor(this.plotWidth / 6.4);
        write(name.length > most ? name.slice(0, most - 1) + "…" : name, { x: this.left + 2, y: this.py(row) - 8 });
      });
      return;
    }
    const factor = unitOf(y)[0];
    for (const value of ticks(this.view.y0 / factor, this.view.y1 / factor, 6)) {
      const at = this.py(value * factor);
      this.frame.append(drawn("path", { d: `M${this.left},${at}h${this.plotWidth}`, class: "grid" }));
      write(figure(value, 4), { x: this.left - 7, y: at + 4, "text-anchor": "end" });
    }
    const middle = this.top + this.plotHeight / 2;
    write(label(y), { x: 13, y: middle, "text-anchor": "middle", transform: `rotate(-90 13 ${middle})`, class: "label" });
  }
  xTicks() {
    const { x0, x1 } = this.view, factor = unitOf(this.data.x)[0], most = clamp(Math.floor(this.plotWidth / 80), 2, 9);
    if (!this.data.x.logarithmic) return ticks(x0 / factor, x1 / factor, most).map(value => value * factor);
    const tens = [0];
    for (let value = 1; value <= x1; value *= 10) tens.push(value);
    const inside = tens.filter(value => value >= x0);
    return inside.length > 2 ? inside : ticks(x0, x1, most);
  }
  spread(places) {
    let last = Infinity;  // from the right, so that the step of a death is always there
    return places.map(([x, text]) => [this.px(x), text]).sort((one, other) => other[0] - one[0])
      .filter(([x]) => x >= this.left && x <= this.left + this.plotWidth + 1 && last - x > 44 && (last = x, true));
  }
  curve(curve) {
    const spots = curve.xs.map((x, index) => [this.px(x), this.py(curve.ys[index])]);
    const line = spots.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`).join("");
    const ground = this.py(0).toFixed(1);
    const path = curve.filled && spots.length
      ? drawn("path", { d: `${line}L${spots.at(-1)[0].toFixed(1)},${ground}L${spots[0][0].toFixed(1)},${ground}Z`, class: `area hue-${curve.hue}` })
      : drawn("path", { d: line, class: `curve hue-${curve.hue}${curve.strong ? "" : " pale"}${curve.dashed ? " dashed" : ""}` });
    this.inside.append(path);
    spots.forEach(([x, y], index) => {
      const value = (curve.shown || curve.ys)[index];
      this.points.push({ x, y, curve, path, text: `${amount(this.data.x, curve.xs[index])}: ${amount(this.data.y, value)}, ${curve.name}` });
    });
  }
  bars(group) {
    for (const [row, start, end, text] of group.bars) {
      const x = this.px(start), width = Math.max(1.5, this.px(end) - x - 0.7), y = this.py(row);
      const path = drawn("rect", { x, y: y - 5, width, height: 14, class: `bar-mark hue-${group.hue}` });
      this.inside.append(path);
      this.points.push({ x: x + width / 2, y: y + 2, half: width / 2, path, text });
    }
  }
  rule(rule) {
    const y = this.py(rule.y);
    if (y < this.top - 1 || y > this.top + this.plotHeight + 1) return;
    this.inside.append(drawn("path", { d: `M${this.left},${y}h${this.plotWidth}`, class: "rule" }));
    this.frame.append(drawn("text", { x: this.left + this.plotWidth - 4, y: y - 6, "text-anchor": "end", class: "label" }, rule.text));
  }
  marks(group) {
    const small = group.marks.length > 300 ? " scale(0.7)" : "";
    for (const [x, y, text, low, high, wide] of group.marks) {
      const at = [this.px(x), this.py(y)], hue = `hue-${group.hue}`;
      if (low !== null && high !== null) this.inside.append(drawn("path", { d: `M${at[0]},${this.py(low)}V${this.py(high)}`, class: `curve ${hue}` }));
      if (wide) this.inside.append(drawn("path", { d: `M${this.px(wide[0])},${at[1]}H${this.px(wide[1])}`, class: `curve ${hue}` }));
      const path = drawn("path", { d: SHAPES[group.shape], transform: `translate(${at[0].toFixed(1)} ${at[1].toFixed(1)})${small}`, class: `mark ${group.shape} ${hue}` });
      this.inside.append(path);
      this.points.push({ x: at[0], y: at[1], path, text, first: true });
    }
  }

  // reading values
  near(x, y) {
    const seen = this.points.filter(point => point.x >= this.left - 1 && point.x <= this.left + this.plotWidth + 1);
    const away = point => Math.hypot(Math.max(0, Math.abs(point.x - x) - (point.half || 0)), point.y - y);
    const marked = seen.filter(point => !point.curve).reduce((best, point) => away(point) < away(best || point) + 1e-9 ? point : best, null);
    if (marked && (away(marked) < 12 || (!this.data.curves.length && away(marked) < REACH))) return [marked];
    const nearest = new Map();
    for (const point of seen) {
      if (!point.curve) continue;
      const best = nearest.get(point.curve);
      if (!best || Math.abs(point.x - x) < Math.abs(best.x - x)) nearest.set(point.curve, point);
    }
    const within = [...nearest.values()].filter(point => Math.abs(point.x - x) < REACH).sort((one, other) => away(one) - away(other));
    return within.filter((point, index) => index === 0 || point.curve.strong).slice(0, 5);
  }
  read(points, clientX, clientY) {
    this.svg.querySelectorAll(".lit").forEach(path => path.classList.remove("lit"));
    if (!points.length) { this.cursor.replaceChildren(); hideTip(); return; }
    points[0].path.classList.add("lit");
    const line = drawn("path", { d: `M${points[0].x},${this.top}V${this.top + this.plotHeight}` });
    this.cursor.replaceChildren(line, ...points.map(point => drawn("circle", { cx: point.x, cy: point.y, r: 4.5 })));
    showTip(points.map(point => point.text), clientX, clientY);
  }
  leave() { this.read([], 0, 0); }
  step(by) {
    const seen = this.points.filter(point => point.x >= this.left - 1 && point.x <= this.left + this.plotWidth + 1);
    if (!seen.length) return;
    const wide = by * (seen.length > 400 ? Math.ceil(seen.length / 200) : 1);
    this.at = clamp(this.at < 0 ? (by > 0 ? 0 : seen.length - 1) : this.at + wide, 0, seen.length - 1);
    const point = seen[this.at], box = this.svg.getBoundingClientRect();
    this.read([point], box.left + point.x, box.top + point.y);
    this.live.textContent = point.text;
  }

  // zoom
  zoom(factor, centre = null) {
    const { x0, x1 } = this.view, low = this.forward(x0), high = this.forward(x1);
    const middle = centre === null ? (low + high) / 2 : this.forward(centre), back = value => this.data.x.logarithmic ? power(value) : value;
    this.show(back(middle - (middle - low) * factor), back(middle + (high - middle) * factor));
  }
  show(x0, x1, y0 = this.view.y0, y1 = this.view.y1) {
    const low = clamp(x0, this.whole.x0, this.whole.x1), high = clamp(x1, this.whole.x0, this.whole.x1);
    if (!(high - low > (this.whole.x1 - this.whole.x0) / 1e5)) return;
    this.view = { x0: low, x1: high, y0, y1 };
    this.at = -1;
    this.leave();
    this.draw();
  }
  reset() { this.show(this.whole.x0, this.whole.x1, this.whole.y0, this.whole.y1); }
  pan(share) {
    const wide = this.view.x1 - this.view.x0, by = clamp(share * wide, this.whole.x0 - this.view.x0, this.whole.x1 - this.view.x1);
    this.show(this.view.x0 + by, this.view.x1 + by);
  }

  listen() {
    const place = event => { const box = this.svg.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    let from = null;
    this.svg.addEventListener("pointerdown", event => {
      if (event.button !== 0 || event.pointerType === "touch") return;
      from = place(event);
      this.svg.setPointerCapture(event.pointerId);
    });
    this.svg.addEventListener("pointermove", event => {
      const [x, y] = place(event);
      if (from && Math.abs(x - from[0]) > 6) {
        hideTip();
        this.cursor.replaceChildren(drawn("rect", { ...this.chosen(from, [x, y]), class: "chosen" }));
      } else this.read(this.near(x, y), event.clientX, event.clientY);
    });
    this.svg.addEventListener("pointerup", event => {
      const start = from, [x, y] = place(event);
      from = null;
      if (!start || Math.abs(x - start[0]) <= 6) return;
      const area = this.chosen(start, [x, y]), flat = this.rows || this.data.curves.length || area.height < 6;
      const up = flat ? [] : [this.uny(area.y + area.height), this.uny(area.y)];
      this.show(this.unx(area.x), this.unx(area.x + area.width), ...up);
    });
    this.svg.addEventListener("pointercancel", () => { from = null; });
    this.svg.addEventListener("pointerleave", () => { if (!from) this.leave(); });
    this.svg.addEventListener("blur", () => this.leave());
    this.svg.addEventListener("dblclick", () => this.reset());
    this.svg.addEventListener("wheel", event => {
      if (!event.ctrlKey && !event.metaKey) return;  // the plain wheel scrolls the page
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.unx(place(event)[0]));
    }, { passive: false });
    this.svg.addEventListener("keydown", event => {
      const acts = {
        ArrowRight: () => event.shiftKey ? this.pan(0.25) : this.step(1), ArrowLeft: () => event.shiftKey ? this.pan(-0.25) : this.step(-1),
        "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.reset(),
      };
      if (!acts[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      acts[event.key]();
    });
  }
  chosen([x0, y0], [x1, y1]) {
    const flat = this.rows || this.data.curves.length || Math.abs(y1 - y0) < 6;
    const left = clamp(Math.min(x0, x1), this.left, this.left + this.plotWidth), right = clamp(Math.max(x0, x1), this.left, this.left + this.plotWidth);
    const up = flat ? this.top : clamp(Math.min(y0, y1), this.top, this.top + this.plotHeight);
    const down = flat ? this.top + this.plotHeight : clamp(Math.max(y0, y1), this.top, this.top + this.plotHeight);
    return { x: left, y: up, width: right - left, height: down - up };
  }
}

// ---------------------------------------------------------------- tables
class List {
  constructor(table) {
    this.body = table.tBodies[0];
    this.rows = [...this.body.rows];
    this.shown = this.rows;
    this.page = 0;
    [...table.tHead.rows[0].cells].forEach((head, column, all) => this.sortable(head, column, all));
    if (this.rows.length >= FILTERED_FROM) this.controls(table);
    this.show();
  }
  sortable(head, column, all) {
    if (this.rows.length < 2) return;
    const button = made("button", { type: "button", class: "sort" }, head.textContent);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      all.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keys = new Map(this.rows.map(row => [row, List.key(row.cells[column])]));
      this.rows.sort((one, other) => (down ? -1 : 1) * List.compare(keys.get(one), keys.get(other)));
      this.body.append(...this.rows);
      this.filter();
    });
    head.replaceChildren(button);
  }
  static key(cell) {
    const text = cell.dataset.v ?? cell.textContent.trim(), value = Number(text.replaceAll(",", "").replace(/\s*%$/, ""));
    return text !== "" && !Number.isNaN(value) ? value : text;
  }
  static compare(one, other) {
    if (typeof one === "number" && typeof other === "number") return one - other;
    if (typeof one !== typeof other) return typeof one === "number" ? -1 : 1;
    return one.localeCompare(other, "en", { numeric: true });
  }
  controls(table) {
    const tones = { bad: "died", good: "survived", calm: "cut off", warn: "not available" };
    const bar = made("div", { class: "bar" }), search = made("input", { type: "search" });
    const label = made("label", {}, "Filter rows ");
    label.append(search);
    bar.append(label);
    search.addEventListener("input", () => { this.words = search.value.toLowerCase().split(/\s+/).filter(Boolean); this.filter(); });
    const present = Object.keys(tones).filter(tone => this.rows.some(row => row.classList.contains(tone)));
    if (present.length > 1) {
      const choice = made("select"), wrap = made("label", {}, "Outcome ");
      choice.append(made("option", { value: "" }, "all"), ...present.map(tone => made("option", { value: tone }, tones[tone])));
      choice.addEventListener("change", () => { this.tone = choice.value; this.filter(); });
      wrap.append(choice);
      bar.append(wrap);
    }
    this.status = made("span", { role: "status" });
    bar.append(this.status);
    if (this.rows.length > PAGED_FROM) {
      this.turns = [["previous", -1], ["next", 1]].map(([name, by]) => {
        const button = made("button", { type: "button" }, name);
        button.addEventListener("click", () => { this.page += by; this.show(); });
        bar.append(button);
        return button;
      });
    }
    table.parentElement.before(bar);
  }
  filter() {
    this.shown = this.rows.filter(row => (!this.tone || row.classList.contains(this.tone)) && this.holds(row));
    this.page = 0;
    this.show();
  }
  holds(row) {
    if (!this.words?.length) return true;
    const text = row.textContent.toLowerCase();
    return this.words.every(word => text.includes(word));
  }
  show() {
    const paged = this.rows.length > PAGED_FROM, last = Math.max(0, Math.ceil(this.shown.length / PAGE) - 1);
    this.page = clamp(this.page, 0, last);
    const kept = new Set(paged ? this.shown.slice(this.page * PAGE, (this.page + 1) * PAGE) : this.shown);
    this.rows.forEach(row => { row.hidden = !kept.has(row); });
    if (!this.status) return;
    const from = this.page * PAGE + 1, count = this.shown.length.toLocaleString("en-US");
    this.status.textContent = paged && kept.size ? `${from} to ${from + kept.size - 1} of ${count}` : `${count} of ${this.rows.length}`;
    this.turns?.forEach((button, index) => { button.disabled = index === 0 ? this.page === 0 : this.page === last; });
  }
}

// ---------------------------------------------------------------- start
document.querySelectorAll("figure[data-chart]").forEach(holder => {
  const still = holder.querySelector(".still");
  new Chart(still, JSON.parse(holder.querySelector("script").textContent));
  still.hidden = true;
});
document.querySelectorAll("table.list").forEach(table => new List(table));
document.querySelectorAll("[data-told]").forEach(square => {
  const told = () => { const box = square.getBoundingClientRect(); showTip([square.dataset.told], box.left, box.bottom - 8); };
  ["pointerenter", "focus"].forEach(name => square.addEventListener(name, told));
  ["pointerleave", "blur"].forEach(name => square.addEventListener(name, hideTip));
});
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  opened.forEach(part => { part.open = true; });
});
addEventListener("afterprint", () => opened.forEach(part => { part.open = false; }));
const reach = () => { const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1)); if (target && !target.hasAttribute("tabindex")) target.tabIndex = -1; target?.focus?.({ preventScroll: true }); };
addEventListener("hashchange", reach);
})();
