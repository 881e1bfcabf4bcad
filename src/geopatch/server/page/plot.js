// The signal with the part that is meant: a large plot to mark it on, and the whole below to move about in.
// uPlot is made for series of this length; each channel has a lane of its own.

const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

// Channels stacked in lanes from 0 (bottom) to 1 (top), by their middle 99.6 percent, so that a spike hides nothing.
function lanes(columns) {
  return columns.map((column, place) => {
    const step = Math.max(1, Math.floor(column.length / 20000));
    const some = [];
    for (let t = 0; t < column.length; t += step) if (column[t] === column[t]) some.push(column[t]);
    some.sort((a, b) => a - b);
    const low = some[Math.floor(some.length * 0.002)] ?? 0;
    const high = some[Math.ceil(some.length * 0.998) - 1] ?? 1;
    const size = 0.84 / columns.length / ((high - low) || 1);
    const base = (columns.length - 1 - place) / columns.length + 0.08 / columns.length;
    return Array.from(column, value => value === value ? base + (value - low) * size : null);
  });
}

export class QueryPlot {
  constructor(place, below, changed) {
    this.place = place;
    this.below = below;
    this.changed = changed;
    this.resize = new ResizeObserver(() => this.fit());
    this.resize.observe(place);
    place.addEventListener("keydown", event => this.key(event));
  }

  // `window_s` is the length that a click marks.
  show(signal, window_s, span = null) {
    this.clear();
    this.signal = signal;
    this.window_s = window_s;
    this.first = signal.start_s;
    this.last = signal.start_s + signal.samples / signal.rate_hz;
    const x = Array.from({ length: signal.samples }, (_, t) => signal.start_s + t / signal.rate_hz);
    this.data = [x, ...lanes(signal.columns)];
    const start = span ? span[0] : this.first;
    const stop = span ? span[1] : Math.min(this.last, start + window_s);
    this.view = this.around(start, stop);
    this.draw();
    this.mark(start, stop);
  }

  around(start, stop) {
    const width = Math.min(this.last - this.first, Math.max((stop - start) * 6, this.window_s * 6));
    const low = clamp((start + stop) / 2 - width / 2, this.first, Math.max(this.last - width, this.first));
    return [low, low + width];
  }

  clear() {
    this.main?.destroy();
    this.whole?.destroy();
    this.main = this.whole = null;
    this.place.querySelectorAll(".lane").forEach(lane => lane.remove());
  }

  draw() {
    const colours = [css("--query"), css("--right"), css("--wrong"), css("--soft")];
    const series = [{}, ...this.signal.columns.map((_, c) => ({
      stroke: colours[c % colours.length], width: 1.4, points: { show: false }, spanGaps: false,
    }))];
    const axis = { stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui", size: 28 };
    const shared = { legend: { show: false }, series, padding: [4, 0, 0, 0] };
    this.main = new uPlot({
      ...shared,
      width: this.place.clientWidth, height: this.place.clientHeight,
      scales: { x: { time: false, range: () => this.view }, y: { range: [0, 1] } },
      axes: [{ ...axis, values: (_, ticks) => ticks.map(tick => `${+tick.toFixed(4)} s`) }, { show: false }],
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false, dist: 4 } },
      hooks: {
        setSelect: [plot => {
          if (this.marking || !plot.select.width) return;
          this.mark(plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x"), true);
        }],
      },
    }, this.data, this.place);
    this.main.over.addEventListener("click", event => this.click(event));
    this.whole = new uPlot({
      ...shared,
      series: series.map((one, n) => n ? { ...one, width: 0.8 } : one),
      width: this.below.clientWidth, height: this.below.clientHeight,
      scales: { x: { time: false, range: [this.first, this.last] }, y: { range: [0, 1] } },
      axes: [{ show: false }, { show: false }],
      cursor: { y: false, x: false, points: { show: false }, drag: { x: true, y: false, setScale: false, dist: 3 } },
      hooks: {
        setSelect: [plot => {
          if (this.marking) return;
          const low = plot.posToVal(plot.select.left, "x");
          const high = plot.posToVal(plot.select.left + plot.select.width, "x");
          if (high - low > 2 / this.signal.rate_hz) this.look(low, high);
        }],
      },
    }, this.data, this.below);
    this.whole.over.addEventListener("click", event => {
      const at = this.whole.posToVal(event.offsetX, "x");
      if (this.whole.select.width < 4) this.pan(at);
    });
    this.signal.columns.forEach((_, c) => {
      const name = this.signal.channels[c] || (this.signal.columns.length > 1 ? `channel ${c}` : "");
      if (!name) return;
      const label = document.createElement("span");
      label.className = "lane";
      label.textContent = name;
      label.style.top = `${6 + c * (this.place.clientHeight - 34) / this.signal.columns.length}px`;
      this.place.append(label);
    });
  }

  click(event) {
    if (this.main.select.width > 3 && this.dragged) { this.dragged = false; return; }
    const at = this.main.posToVal(event.offsetX, "x");
    this.mark(at - this.window_s / 2, at + this.window_s / 2);
    this.place.focus({ preventScroll: true });
  }

  mark(start, stop, dragged = false) {
    const sample = 1 / this.signal.rate_hz;
    this.dragged = dragged;
    let length = Math.max(Math.min(stop - start, this.last - this.first), sample);
    start = clamp(start, this.first, this.last - length);
    start = this.first + Math.round((start - this.first) / sample) * sample;
    length = Math.round(length / sample) * sample;
    this.span = [start, Math.min(start + length, this.last)];
    if (start < this.view[0] || this.span[1] > this.view[1]) this.view = this.around(...this.span);
    this.refresh();
    this.changed(this.span);
  }

  refresh() {
    if (!this.main) return;
    this.marking = true;
    this.main.setScale("x", { min: this.view[0], max: this.view[1] });
    this.lay(this.main, this.span);
    this.lay(this.whole, this.view);
    this.marking = false;
  }

  lay(plot, [low, high]) {
    const left = plot.valToPos(low, "x");
    plot.setSelect({ left, width: plot.valToPos(high, "x") - left, top: 0, height: plot.over.clientHeight }, false);
  }

  look(low, high) {
    this.view = [clamp(low, this.first, this.last), clamp(high, this.first, this.last)];
    this.refresh();
  }

  pan(at) {
    const width = this.view[1] - this.view[0];
    const low = clamp(at - width / 2, this.first, Math.max(this.last - width, this.first));
    this.look(low, low + width);
  }

  zoom(factor) {
    const middle = (this.span[0] + this.span[1]) / 2;
    const least = Math.min((this.span[1] - this.span[0]) * 1.1, this.last - this.first);
    const width = clamp((this.view[1] - this.view[0]) * factor, least, this.last - this.first);
    const low = clamp(middle - width / 2, this.first, Math.max(this.last - width, this.first));
    this.look(low, low + width);
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
    this.whole.setSize({ width: this.below.clientWidth, height: this.below.clientHeight });
    this.refresh();
  }

  redraw() {
    if (!this.main) return;
    const span = this.span;
    this.clear();
    this.draw();
    this.mark(...span);
  }
}
