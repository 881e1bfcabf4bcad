// The signal with the marked span: a large plot to mark it on, and an overview below to move about in.
// uPlot draws series of this length quickly; each channel has a lane of its own.

import { clock, isSound, spectrogram } from "/page/draw.js";

const CLICK_PX = 4, DETAIL_DELAY_MS = 120, LABEL_PX = 44;

const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

// Lanes from 0 (bottom) to 1 (top), by the middle 99.6 percent of each channel, so that a spike hides nothing.
function lanesOf(columns) {
  return columns.map((column, place) => {
    const step = Math.max(1, Math.floor(column.length / 20000));
    const sample = [];
    for (let t = 0; t < column.length; t += step) if (!Number.isNaN(column[t])) sample.push(column[t]);
    sample.sort((a, b) => a - b);
    const low = sample[Math.floor(sample.length * 0.002)] ?? 0;
    const high = sample[Math.ceil(sample.length * 0.998) - 1] ?? 1;
    return { low, size: 0.84 / columns.length / ((high - low) || 1), base: (columns.length - 1 - place + 0.08) / columns.length };
  });
}

// Times and one series a channel, as uPlot takes them. A bucket of several samples has two rows: minimum and maximum.
function series(signal, lanes) {
  const row = (signal.bucket > 1 ? signal.bucket / 2 : 1) / clock(signal);
  const x = Array.from({ length: signal.samples }, (_, t) => signal.start_s + t * row);
  return [x, ...signal.columns.map((column, c) => {
    const { low, size, base } = lanes[c];
    return Array.from(column, value => Number.isNaN(value) ? null : base + (value - low) * size);
  })];
}

// One gesture for mouse, touch and pen. A vertical swipe scrolls the page instead, and is cancelled.
function onDrag(over, { begin = () => {}, drag, click, cancel = () => {} }) {
  let origin = null, dragged = false;
  const position = event => {
    const box = over.getBoundingClientRect();
    return clamp(event.clientX - box.left, 0, box.width);
  };
  over.addEventListener("pointerdown", event => {
    if (event.button !== 0 || !event.isPrimary) return;
    over.setPointerCapture(event.pointerId);
    [origin, dragged] = [position(event), false];
    begin();
  });
  over.addEventListener("pointermove", event => {
    if (origin === null || !event.isPrimary) return;
    const x = position(event);
    dragged ||= Math.abs(x - origin) >= CLICK_PX;
    if (dragged) drag(Math.min(origin, x), Math.max(origin, x));
  });
  over.addEventListener("pointerup", event => {
    if (origin === null || !event.isPrimary) return;
    if (!dragged) click(position(event));
    origin = null;
  });
  over.addEventListener("pointercancel", () => {
    if (dragged) cancel();
    origin = null;
  });
}

export class QueryPlot {
  // `changed` is called with each new span, `load` with the times of a part to draw in detail.
  constructor(place, below, changed, load) {
    Object.assign(this, { place, below, changed, load });
    new ResizeObserver(() => this.fit()).observe(place);
    place.addEventListener("keydown", event => this.key(event));
  }

  // `window_s` is the length that a click marks.
  show(signal, window_s, span = null) {
    this.clear();
    this.signal = signal;
    this.window_s = window_s;
    this.first = signal.start_s;
    this.last = signal.stop_s;
    this.lanes = lanesOf(signal.columns);
    this.data = series(signal, this.lanes);
    this.image = isSound(signal.channels) ? spectrogram(signal.columns) : null;
    this.detail = null;
    const start = span ? span[0] : this.first;
    this.view = [this.first, this.first];
    this.draw();
    this.mark(start, span ? span[1] : Math.min(this.last, start + window_s));
  }

  around(start, stop) {
    return this.within((start + stop) / 2, Math.max((stop - start) * 6, this.window_s * 6));
  }

  within(middle, width) {
    width = Math.min(width, this.last - this.first);
    const low = clamp(middle - width / 2, this.first, this.last - width);
    return [low, low + width];
  }

  clear() {
    clearTimeout(this.timer);
    this.main?.destroy();
    this.overview?.destroy();
    this.main = this.overview = null;
    this.place.querySelectorAll(".lane").forEach(lane => lane.remove());
  }

  draw() {
    const colours = [css("--query"), css("--right"), css("--wrong"), css("--soft")];
    const lines = width => [{}, ...this.signal.columns.map((_, c) => ({
      stroke: colours[c % colours.length], width, points: { show: false }, spanGaps: false, show: !this.image,
    }))];
    const axis = { stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui", size: 28 };
    const shared = { legend: { show: false }, padding: [4, 0, 0, 0] };
    const none = () => null; // what uPlot does with a mouse button, `onDrag` does for every pointer
    const bind = { mousedown: none, mouseup: none, dblclick: none };
    const suffix = this.signal.rate_hz === null ? "" : " s";
    const label = tick => { // none where it would be cut off at an edge
      const [low, high] = this.view, margin = LABEL_PX / 2 / this.place.clientWidth * (high - low);
      return tick < low + margin || tick > high - margin ? "" : `${+tick.toFixed(4)}${suffix}`;
    };
    this.main = new uPlot({
      ...shared, series: lines(1.4),
      width: this.place.clientWidth, height: this.place.clientHeight,
      scales: { x: { time: false, range: () => this.view }, y: { range: [0, 1] } },
      axes: [{ ...axis, values: (_, ticks) => ticks.map(label) }, { show: false }],
      cursor: { y: false, points: { show: false }, bind },
      hooks: { drawClear: [plot => this.paint(plot)], draw: [plot => this.select(plot, this.span)] },
    }, this.data, this.place);
    this.overview = new uPlot({
      ...shared, series: lines(0.8),
      width: this.below.clientWidth, height: this.below.clientHeight,
      scales: { x: { time: false, range: [this.first, this.last] }, y: { range: [0, 1] } },
      axes: [{ show: false }, { show: false }],
      cursor: { show: false, bind },
      hooks: { drawClear: [plot => this.paint(plot)], draw: [plot => this.select(plot, this.view)] },
    }, this.data, this.below);
    this.listen(this.main, this.overview);
    this.name();
  }

  listen(main, overview) {
    const at = (plot, x) => plot.posToVal(x, "x");
    let before = null;
    onDrag(main.over, {
      begin: () => { before = this.span; },
      drag: (left, right) => this.mark(at(main, left), at(main, right)),
      click: x => {
        this.mark(at(main, x) - this.window_s / 2, at(main, x) + this.window_s / 2);
        this.place.focus({ preventScroll: true });
      },
      cancel: () => this.mark(...before),
    });
    onDrag(overview.over, {
      drag: (left, right) => this.setView(at(overview, left), at(overview, right)),
      click: x => this.setView(...this.within(at(overview, x), this.view[1] - this.view[0])),
    });
  }

  // Bands of sound lie under everything else.
  paint(plot) {
    if (!this.image) return;
    const { left, top, width, height } = plot.bbox;
    const [from, to] = [this.first, this.last].map(at => plot.valToPos(at, "x", true));
    plot.ctx.save();
    plot.ctx.beginPath();
    plot.ctx.rect(left, top, width, height);
    plot.ctx.clip();
    plot.ctx.drawImage(this.image, from, top, to - from, height);
    plot.ctx.restore();
  }

  name() {
    this.signal.columns.forEach((_, c) => {
      if (this.image) return;
      const name = this.signal.channels[c] || (this.signal.columns.length > 1 ? `channel ${c}` : "");
      if (!name) return;
      const label = document.createElement("span");
      label.className = "lane";
      label.textContent = name;
      label.style.top = `${6 + c * (this.place.clientHeight - 34) / this.signal.columns.length}px`;
      this.place.append(label);
    });
  }

  mark(start, stop) {
    const sample = 1 / clock(this.signal);
    let length = clamp(stop - start, sample, this.last - this.first);
    start = clamp(start, this.first, this.last - length);
    start = this.first + Math.round((start - this.first) / sample) * sample;
    length = Math.round(length / sample) * sample;
    this.span = [start, Math.min(start + length, this.last)];
    const [low, high] = this.view;
    this.setView(...(start < low || this.span[1] > high ? this.around(...this.span) : this.view));
    this.changed(this.span);
  }

  setView(low, high) {
    const least = 2 / clock(this.signal);
    if (high - low < least) [low, high] = this.within((low + high) / 2, least);
    this.view = [clamp(low, this.first, this.last), clamp(high, this.first, this.last)];
    this.refresh();
  }

  // Both plots are drawn anew; the spans are placed by `select`, which uPlot calls after it has drawn.
  refresh() {
    if (!this.main) return;
    const detailed = this.detail && this.detail.start_s <= this.view[0] && this.view[1] <= this.detail.stop_s;
    const data = detailed ? this.detail.data : this.data;
    if (this.main.data !== data) this.main.setData(data, false);
    this.place.dataset.bucket = detailed ? this.detail.bucket : this.signal.bucket;
    this.main.setScale("x", { min: this.view[0], max: this.view[1] });
    this.overview.redraw(false);
    this.fetchDetail(detailed);
  }

  select(plot, [low, high]) {
    const left = plot.valToPos(low, "x");
    plot.setSelect({ left, width: plot.valToPos(high, "x") - left, top: 0, height: plot.over.clientHeight }, false);
  }

  // What is drawn of a long record are minima and maxima of buckets: the visible part is loaded with smaller ones.
  fetchDetail(detailed) {
    clearTimeout(this.timer);
    const width = this.view[1] - this.view[0];
    const enough = detailed && (this.detail.bucket === 1 || this.detail.stop_s - this.detail.start_s <= 4 * width);
    if (this.signal.bucket === 1 || enough || width > (this.last - this.first) / 10) return;
    const signal = this.signal;
    this.timer = setTimeout(async () => {
      const [low, high] = [Math.max(this.view[0] - width / 2, this.first), Math.min(this.view[1] + width / 2, this.last)];
      const part = await this.load(low, high);
      if (!part || signal !== this.signal) return;
      this.detail = { start_s: low, stop_s: high, bucket: part.bucket, data: series(part, this.lanes) };
      this.refresh();
    }, DETAIL_DELAY_MS);
  }

  zoom(factor) {
    const least = (this.span[1] - this.span[0]) * 1.1;
    this.setView(...this.within((this.span[0] + this.span[1]) / 2, Math.max((this.view[1] - this.view[0]) * factor, least)));
  }

  key(event) {
    if (!this.main || event.target !== this.place) return;
    const [start, stop] = this.span;
    const step = (stop - start) / 8;
    const moves = {
      ArrowLeft: event.shiftKey ? [start, stop - step] : [start - step, stop - step],
      ArrowRight: event.shiftKey ? [start, stop + step] : [start + step, stop + step],
      PageUp: [start - (stop - start), start], PageDown: [stop, stop + (stop - start)],
      Home: [this.first, this.first + stop - start], End: [this.last - (stop - start), this.last],
    };
    if (moves[event.key]) this.mark(...moves[event.key]);
    else if (event.key === "+" || event.key === "=") this.zoom(1 / 1.6);
    else if (event.key === "-") this.zoom(1.6);
    else if (event.key === "Enter") document.getElementById("span").requestSubmit();
    else return;
    event.preventDefault();
  }

  fit() {
    if (!this.main || !this.place.clientWidth) return;
    this.main.setSize({ width: this.place.clientWidth, height: this.place.clientHeight });
    this.overview.setSize({ width: this.below.clientWidth, height: this.below.clientHeight });
  }

  // In the colours of another theme.
  redraw() {
    if (!this.main) return;
    this.clear();
    this.draw();
    this.refresh();
  }
}
