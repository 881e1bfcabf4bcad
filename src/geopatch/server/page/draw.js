// Small pictures as SVG: no library is needed for some hundred points.

const SPACE = "http://www.w3.org/2000/svg";

export function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// Two digits: 2.5e-7, 0.013, 4.2, 130.
export function chanceText(chance) {
  return chance < 1e-3 ? chance.toExponential(1) : chance < 99.5 ? `${+chance.toPrecision(2)}` : chance.toFixed(0);
}

export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") node.className = value; else if (key in node && key !== "list") node[key] = value; else node.setAttribute(key, value);
  }
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}

export const channel = (window, c) => window.values.map(row => row[Math.min(c, row.length - 1)]);

export function median(values) {
  const known = values.filter(value => value !== null).sort((a, b) => a - b);
  return known.length ? known[Math.floor(known.length / 2)] : 0;
}

// A polyline over time; gaps stay gaps.
export function path(values, clock_hz, x, y) {
  let text = "", open = false;
  values.forEach((value, t) => {
    if (value === null) { open = false; return; }
    text += `${open ? "L" : "M"}${x(t / clock_hz).toFixed(2)} ${y(value).toFixed(2)}`;
    open = true;
  });
  return text;
}

export function scale(low, high, from, to) {
  const size = (to - from) / ((high - low) || 1);
  return value => from + (value - low) * size;
}

export function range(...lists) {
  const known = lists.flat().filter(value => value !== null);
  const low = Math.min(...known), high = Math.max(...known);
  return low < high ? [low, high] : [low - 1, high + 1];
}

const VIRIDIS = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [240, 220, 40]];

// Dark to light in the order of time: distinct with any kind of colour vision, and in grey.
export function hue(share) {
  const place = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1);
  const n = Math.min(Math.floor(place), VIRIDIS.length - 2);
  const mixed = VIRIDIS[n].map((value, c) => Math.round(value + (VIRIDIS[n + 1][c] - value) * (place - n)));
  return `rgb(${mixed.join(" ")})`;
}

// Neighbouring bands of a spectrum are one picture, not forty lines.
export const isSound = channels => channels.length > 1 && channels.every(name => name.startsWith("mel "));

// Bands (columns of equally many values) as a canvas with a pixel for each value, the lowest band at the bottom.
export function spectrogram(columns) {
  const [width, height] = [columns[0].length, columns.length];
  const canvas = element("canvas", { width, height });
  const known = columns.flatMap(column => Array.from(column).filter(value => value !== null && !Number.isNaN(value))).sort((a, b) => a - b);
  const [low, high] = [0.01, 0.99].map(share => known[Math.floor(share * (known.length - 1))] ?? 0);
  const shade = scale(low, high, 0, 255);
  const picture = new ImageData(width, height);
  columns.forEach((column, band) => column.forEach((value, t) => {
    picture.data.set([13, 122, 110, value === null || Number.isNaN(value) ? 0 : shade(value)], 4 * ((height - 1 - band) * width + t));
  }));
  canvas.getContext("2d").putImageData(picture, 0, 0);
  return canvas;
}

// The same as part of an SVG, from the time 0 on.
export function bandsImage(window, clock_hz, x, y, height) {
  const columns = window.values[0].map((_, c) => channel(window, c));
  const href = spectrogram(columns).toDataURL();
  return svg("image", { href, x: x(0), y, width: x(window.values.length / clock_hz) - x(0), height, preserveAspectRatio: "none", class: "bands" });
}

// Times are in seconds, or in samples where the rate is not known (null).
export const clock = ({ rate_hz }) => rate_hz ?? 1;
export const unit = ({ rate_hz }) => rate_hz === null ? "samples" : "s";
export const time = value => `${+value.toFixed(3)}`;
export const span = (start, stop, of) => `${time(start)}–${time(stop)} ${unit(of)}`;
export const duration = window => window.values.length / clock(window);
