// Talk to the server. Every refusal becomes an Error with the server's one line.

const KEY = "geopatch-token";

export class Refused extends Error {
  constructor(status, line) { super(line); this.status = status; }
}

async function askForToken() {
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
  if (response.status === 401 && await askForToken()) return call(path, init);
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refused(response.status, body.detail || `the server answered ${response.status}`);
  return body;
}

const post = (path, body, signal) =>
  call(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });

export const info = () => call("/api/info");
export const openapi = () => call("/api/openapi.json");
export const records = contains => call(`/api/records?limit=200&contains=${encodeURIComponent(contains)}`);
export const search = (body, signal) => post("/api/search", body, signal);
export const explain = (body, signal) => post("/api/explain", body, signal);
export const storedWindow = id => call(`/api/window?id=${encodeURIComponent(id)}`);
export const record = async name => drawn(await call(`/api/record?name=${encodeURIComponent(name)}`));

export async function read(files) {
  const form = new FormData();
  for (const file of files) form.append("file", file, file.name);
  return drawn(await call("/api/read", { method: "POST", body: form }));
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

// A signal for drawing: values as one Float32Array a channel.
export function drawn({ data, samples, width, ...told }) {
  return { ...told, samples, columns: split(fromBase64(data), samples, width) };
}

export function split(flat, samples, width) {
  return Array.from({ length: width }, (_, c) => Float32Array.from({ length: samples }, (_, t) => flat[t * width + c]));
}
