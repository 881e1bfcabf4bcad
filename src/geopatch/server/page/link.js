// A search as the part of an address after #: it never leaves the browser, and opens the same search again.

import { fromBase64, split, toBase64 } from "/page/api.js";
import { clock } from "/page/draw.js";

const LONGEST = 24000; // values of a signal that a link carries

export function toHash(state) {
  const params = new URLSearchParams();
  const { source, span } = state;
  if (source.kind === "record") {
    params.set("record", source.name);
    params.set("start", +span[0].toFixed(6));
    params.set("stop", +span[1].toFixed(6));
  } else if (source.kind === "id") {
    params.set("id", source.name);
  } else {
    const window = state.answer?.query.window;
    if (!window || window.values.length * window.values[0].length > LONGEST) return null;
    params.set("name", source.name);
    if (window.rate_hz !== null) params.set("rate", window.rate_hz);
    params.set("width", window.values[0].length);
    if (window.channels.length) params.set("channels", JSON.stringify(window.channels));
    params.set("signal", toBase64(Float32Array.from(window.values.flat(), value => value === null ? NaN : value)));
  }
  params.set("scorer", state.scorer);
  if (state.protocol) params.set("protocol", state.protocol);
  params.set("k", state.k);
  if (state.gap) params.set("gap", state.gap);
  if (state.tempos) params.set("tempos", 1);
  if (state.clock != null) params.set("clock", state.clock);
  if (state.where) params.set("where", JSON.stringify(state.where));
  if (state.hit) params.set("hit", state.hit);
  return `#${params}`;
}

export function fromHash(hash) {
  const params = new URLSearchParams(hash.slice(1));
  const json = name => { try { return JSON.parse(params.get(name)); } catch { return null; } };
  const number = (name, otherwise) => params.has(name) && Number.isFinite(+params.get(name)) ? +params.get(name) : otherwise;
  const search = {
    scorer: params.get("scorer"), protocol: params.get("protocol") || "", k: number("k", null), gap: number("gap", 0),
    tempos: params.has("tempos"), clock: number("clock", null), where: json("where"), hit: params.get("hit"), source: null,
  };
  if (params.has("record")) {
    search.source = { kind: "record", name: params.get("record") };
    search.span = [number("start", 0), number("stop", 0)];
  } else if (params.has("id")) {
    search.source = { kind: "id", name: params.get("id") };
  } else if (params.has("signal")) {
    const flat = fromBase64(params.get("signal"));
    const width = number("width", 1), samples = Math.floor(flat.length / width);
    const signal = { id: params.get("name") || "signal", start_s: 0, rate_hz: number("rate", null), channels: json("channels") || [], bucket: 1, samples, columns: split(flat, samples, width) };
    signal.stop_s = samples / clock(signal);
    search.source = { kind: "file", name: signal.id, signal };
    search.span = [0, signal.stop_s];
  }
  return search;
}
