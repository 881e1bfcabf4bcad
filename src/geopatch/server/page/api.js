// Requests to the server. Every refusal becomes an Error with the server's one line.

const KEY = "geopatch-token";
const RECORD_POINTS = 40000, DETAIL_POINTS = 8000; // rows in a drawing of a record, and of a part of it

export class Refused extends Error {
  constructor(status, line) { super(line); this.status = status; }
}

async function requestToken() {
  const dialog = document.getElementById("token-dialog");
  const field = document.getElementById("token");
  dialog.showModal();
  await new Promise(done => dialog.addEventListener("close", done, { once: true }));
  sessionStorage.setItem(KEY, field.value.trim());
  field.value = "";
  return sessionStorage.getItem(KEY) !== "";
}

async function call(path, init = {}) {
  const token = sessionStorage.getItem(KEY);
  const headers = { ...(init.headers || {}), ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...init, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The server does not answer. Is it still running?");
  }
  if (response.status === 401 && await requestToken()) return call(path, init);
  const body = await response.json().catch(() => ({}));
  init.signal?.throwIfAborted();
  if (!response.ok) throw new Refused(response.status, body.detail || `the server answered ${response.status}`);
  return body;
}

const post = (path, body, signal) =>
  call(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });

// Only the newest request of a kind counts: starting one aborts the one before, whose answer is dropped if it comes still.
export class Newest {
  start() {
    this.abort();
    this.controller = new AbortController();
    return this.controller.signal;
  }

  abort() { this.controller?.abort(); }
}

export const info = () => call("/api/info");
export const openapi = () => call("/api/openapi.json");
export const records = (contains, signal) => call(`/api/records?${new URLSearchParams({ limit: 200, contains })}`, { signal });
export const search = (body, signal) => post("/api/search", body, signal);
export const explain = (body, signal) => post("/api/explain", body, signal);
export const survey = (kind, k, where, signal) =>
  call(`/api/${kind}?${new URLSearchParams({ k, windows: true, ...(where ? { where: typeof where === "string" ? where : JSON.stringify(where) } : {}) })}`, { signal });
export const storedWindow = (id, signal) => call(`/api/window?${new URLSearchParams({ id })}`, { signal });
export const record = (name, signal) => drawing({ name, points: RECORD_POINTS }, signal);
export const recordPart = (name, start_s, stop_s, signal) => drawing({ name, start_s, stop_s, points: DETAIL_POINTS }, signal);

async function drawing(params, signal) {
  return drawn(await call(`/api/record?${new URLSearchParams(params)}`, { signal }));
}

export async function read(files, signal) {
  const form = new FormData();
  for (const file of files) form.append("file", file, file.name);
  return drawn(await call("/api/read", { method: "POST", body: form, signal }));
}

export function toBase64(floats) {
  const bytes = new Uint8Array(floats.buffer, floats.byteOffset, floats.byteLength);
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

export function fromBase64(text) {
  const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

// A signal for drawing: values as one Float32Array a channel; `rate_hz` is null where it is not known.
function drawn({ data, width, rate_known, ...signal }) {
  return { ...signal, rate_hz: rate_known ? signal.rate_hz : null, columns: split(fromBase64(data), signal.samples, width) };
}

export function split(flat, samples, width) {
  return Array.from({ length: width }, (_, c) => Float32Array.from({ length: samples }, (_, t) => flat[t * width + c]));
}
