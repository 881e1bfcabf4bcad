// A search as the part of an address after #: it never leaves the browser, and opens the same search again.

import { fromBase64, split, toBase64 } from "/page/api.js";

const LONGEST = 24000; // values of a signal that a link carries

export function toHash(state) {
  const told = new URLSearchParams();
  const { source, span } = state;
  if (source.kind === "record") {
    told.set("record", source.name);
    told.set("start", +span[0].toFixed(6));
    told.set("stop", +span[1].toFixed(6));
  } else if (source.kind === "id") {
    told.set("id", source.name);
  } else {
    const window = state.answer?.query.window;
    if (!window || window.values.length * window.values[0].length > LONGEST) return null;
    told.set("name", source.name);
    told.set("rate", window.rate_hz);
    told.set("width", window.values[0].length);
    if (window.channels.length) told.set("channels", JSON.stringify(window.channels));
    told.set("signal", toBase64(Float32Array.from(window.values.flat(), value => value === null ? NaN : value)));
  }
  told.set("scorer", state.scorer);
  if (state.protocol) told.set("protocol", state.protocol);
  told.set("k", state.k);
  if (state.gap) told.set("gap", state.gap);
  if (state.tempos) told.set("tempos", 1);
  if (state.where) told.set("where", JSON.stringify(state.where));
  if (state.hit) told.set("hit", state.hit);
  return `#${told}`;
}

export function fromHash(hash) {
  const told = new URLSearchParams(hash.slice(1));
  const json = name => { try { return JSON.parse(told.get(name)); } catch { return null; } };
  const number = (name, otherwise) => told.has(name) && Number.isFinite(+told.get(name)) ? +told.get(name) : otherwise;
  const found = {
    scorer: told.get("scorer"), protocol: told.get("protocol") || "", k: number("k", null), gap: number("gap", 0),
    tempos: told.has("tempos"), where: json("where"), hit: told.get("hit"), source: null,
  };
  if (told.has("record")) {
    found.source = { kind: "record", name: told.get("record") };
    found.span = [number("start", 0), number("stop", 0)];
  } else if (told.has("id")) {
    found.source = { kind: "id", name: told.get("id") };
  } else if (told.has("signal")) {
    const flat = fromBase64(told.get("signal"));
    const width = number("width", 1), samples = Math.floor(flat.length / width);
    const signal = { id: told.get("name") || "signal", start_s: 0, rate_hz: number("rate", 1), channels: json("channels") || [], samples, columns: split(flat, samples, width) };
    found.source = { kind: "file", name: signal.id, signal };
    found.span = [0, samples / signal.rate_hz];
  }
  return found;
}
