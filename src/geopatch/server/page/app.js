// The page: the query, the options of the search, and its hits.

import * as api from "/page/api.js";
import { clock, element, time, unit } from "/page/draw.js";
import { Filters } from "/page/filters.js";
import { Hits } from "/page/hits.js";
import { fromHash, toHash } from "/page/link.js";
import { showMatch } from "/page/match.js";
import { QueryPlot } from "/page/plot.js";
import { surveyed } from "/page/survey.js";

const $ = id => document.getElementById(id);
const SCORERS = {
  cosine: "One vector per window: the fastest.",
  maxsim: "For each patch of the query, its best patch in the window.",
  fused: "The vector and the patches together, in both directions.",
  bridge: "As maxsim, with a soft choice of the best patch.",
  dtw: "Fused, less the distance between the values after time warping. Slow.",
  aligned: "The best path through the patches of both, in the order of time.",
  "fused-aligned": "The vector, and the best path through the patches.",
};
const PROTOCOLS = { "": "every window", "strict-nonoverlap": "not those that overlap the query", "strict-cross-record": "other records only" };

const state = { source: null, signal: null, span: null, request: null, answer: null, hit: null, picked: [], searched: false, surveyed: null };
const searches = new api.Newest(), openings = new api.Newest(), details = new api.Newest(), lists = new api.Newest();
let gallery = null;

const plot = new QueryPlot($("plot"), $("overview"), marked, loadPart);
const hits = new Hits($("hits"), (id, scroll) => state.surveyed ? searchFor(id) : explain(id, scroll));
const filters = new Filters($("fields"), $("where"), $("clear-filters"), () => again());

// ---- the query

async function listRecords() {
  const { total, records } = await api.records($("record-find").value, lists.start());
  const nodes = records.map(one => {
    const node = element("li", { role: "option", id: `record-${one.name}` }, element("span", { title: one.name }, one.name),
      element("small", {}, `${one.windows.toLocaleString("en")} window${one.windows > 1 ? "s" : ""} · ${time(one.stop_s - one.start_s)} ${unit(gallery)}`));
    node.dataset.name = one.name;
    node.setAttribute("aria-selected", String(state.source?.kind === "record" && state.source.name === one.name));
    return node;
  });
  $("records").replaceChildren(...(nodes.length ? nodes : [element("li", { class: "none" }, "no such record")]));
  $("records-more").hidden = total <= records.length;
  $("records-more").textContent = `${total - records.length} more; type to find them`;
}

function recordKey(event) {
  const nodes = [...$("records").querySelectorAll("li[data-name]")];
  if (!nodes.length) return;
  const at = nodes.findIndex(node => node.classList.contains("at"));
  const to = { ArrowDown: at + 1, ArrowUp: Math.max(at - 1, 0), Home: 0, End: nodes.length - 1 }[event.key];
  if (to !== undefined) {
    nodes.forEach((node, n) => node.classList.toggle("at", n === Math.min(to, nodes.length - 1)));
    const now = nodes[Math.min(to, nodes.length - 1)];
    now.scrollIntoView({ block: "nearest" });
    $("records").setAttribute("aria-activedescendant", now.id);
  } else if (event.key === "Enter" || event.key === " ") pick((nodes[at] || nodes[0]).dataset.name);
  else return;
  event.preventDefault();
}

const pick = name => attempt(async () => {
  show({ kind: "record", name }, await api.record(name, openings.start()));
}, () => pick(name));

const openFiles = list => attempt(async () => {
  if (!list.length) return;
  const signal = await api.read(list, openings.start());
  show({ kind: "file", name: signal.id, rate_known: signal.rate_hz !== null }, atRate(signal, signal.rate_hz ?? gallery.rate_hz));
}, () => openFiles(list));

function atRate(signal, rate_hz) {
  const timed = { ...signal, rate_hz };
  return { ...timed, stop_s: signal.start_s + signal.samples / clock(timed) };
}

function marked(span) {
  const same = state.span?.every((edge, n) => edge === span[n]);
  state.span = span;
  $("start").value = time(span[0]);
  $("stop").value = time(span[1]);
  if (!same && state.searched) outdate();
}

// The hits on the page, or on their way, are not those of the query any more.
function outdate() {
  searches.abort();
  hits.outdate();
  state.hit = null;
  $("link").disabled = true;
  $("took").textContent = "The query has changed: search again.";
}

async function loadPart(start_s, stop_s) {
  let part = null;
  await attempt(async () => { part = await api.recordPart(state.source.name, start_s, stop_s, details.start()); });
  return part;
}

function show(source, signal, span = null) {
  problem(null);
  searches.abort();
  details.abort();
  hits.replace();
  if (!span) history.replaceState(null, "", location.pathname);
  Object.assign(state, { source, signal, span: null, hit: null, answer: null, searched: false });
  state.picked = signal.columns.map((_, c) => c).slice(0, gallery.channels || signal.columns.length);
  $("query-empty").hidden = true;
  $("plots").hidden = false;
  $("rate-label").hidden = source.kind !== "file" || source.rate_known !== false;
  $("rate").value = signal.rate_hz ?? "";
  for (const node of document.querySelectorAll(".query-unit")) node.textContent = unit(signal);
  const rate = signal.rate_hz === null ? "" : ` at ${signal.rate_hz} Hz`;
  $("query-summary").textContent = `${source.kind === "file" ? source.name : `record ${source.name}`} · ${time(signal.stop_s - signal.start_s)} ${unit(signal)}${rate}`;
  for (const node of $("records").children) node.setAttribute("aria-selected", String(source.kind === "record" && node.dataset.name === source.name));
  showChannels();
  $("protocol").disabled = source.kind === "file"; // a file is of no stored record
  if (!span) $("results").hidden = true;
  plot.show(signal, gallery.rate_hz === null ? gallery.window_s / clock(signal) : gallery.window_s, span);
}

// A file may have more channels than the model takes: the user says which.
function showChannels() {
  const { columns, channels } = state.signal;
  const choose = state.source.kind === "file" && gallery.channels > 0 && columns.length > gallery.channels;
  $("channels").hidden = !choose;
  $("channels").replaceChildren(...(choose ? columns.map((_, c) => {
    const box = element("input", { type: "checkbox", checked: state.picked.includes(c) });
    box.addEventListener("change", () => {
      state.picked = [...$("channels").querySelectorAll("input")].flatMap((one, n) => one.checked ? [n] : []);
      again();
    });
    return element("label", { class: "chip" }, box, channels[c] || `channel ${c}`);
  }) : []));
}

// ---- searching

function query() {
  const { source, signal, span } = state;
  if (source.kind === "record") return { record: source.name, start_s: span[0], stop_s: span[1] };
  if (source.kind === "id") return { id: source.name };
  const [first, last] = span.map(second => Math.round((second - signal.start_s) * clock(signal)));
  const values = [];
  for (let t = first; t < last; t++) values.push(state.picked.map(c => Number.isNaN(signal.columns[c][t]) ? null : signal.columns[c][t]));
  const names = signal.channels.length ? state.picked.map(c => signal.channels[c]) : [];
  return { signal: { values, rate_hz: signal.rate_hz, channels: names, id: source.name } };
}

function options() {
  state.scorer = document.querySelector("#scorers input:checked")?.value || gallery.default_scorer;
  state.protocol = $("protocol").value;
  state.k = Math.min(Math.max(Math.round(+$("k").value) || 12, 1), 100);
  state.gap = Math.max(+$("gap").value || 0, 0);
  state.tempos = $("tempos").checked;
  state.clock = gallery.rhythm && $("clock").dataset.moved ? +$("clock").value : null;
  state.where = filters.where();
  const strict = state.protocol && state.source.kind === "file";
  return { query: query(), k: state.k, scorer: state.scorer, protocol: strict ? null : state.protocol || null, min_gap_s: state.gap, tempos: state.tempos, clock: state.clock, where: state.where };
}

async function search(wanted = null) {
  if (!state.source) return;
  const signal = searches.start();
  const request = options();
  Object.assign(state, { request, searched: true, hit: null, surveyed: null });
  $("results").hidden = false;
  $("took").textContent = "searching …";
  $("notes").hidden = true;
  problem(null);
  hits.loading(request.k);
  try {
    const start = performance.now();
    const answer = await api.search({ ...request, certify: true, windows: true }, signal);
    state.answer = answer;
    const total_ms = performance.now() - start;
    $("took").textContent = `${answer.hits.length} of ${gallery.windows.toLocaleString("en")} windows in ${answer.took_ms.toFixed(1)} ms (${total_ms.toFixed(0)} ms with the network)`;
    $("notes").replaceChildren(...answer.notes.map(note => element("p", {}, `${note[0].toUpperCase()}${note.slice(1)}.`)));
    $("notes").hidden = !answer.notes.length;
    if (answer.hits.length) hits.show(answer, 0, gallery);
    else hits.nothing("No window to search in: the filter or the protocol excludes all.", state.where ? () => { filters.reset(); filters.notify(); } : null);
    remember();
    if (wanted && answer.hits.some(hit => hit.id === wanted)) await explain(wanted, false);
  } catch (error) {
    if (error.name === "AbortError") return;
    $("took").textContent = "";
    hits.replace();
    problem(error, () => search(wanted));
  }
}

// What happens most often, or nowhere else: shown as hits; one that is chosen becomes the query.
async function survey(kind) {
  const signal = searches.start();
  Object.assign(state, { request: null, searched: false, hit: null, surveyed: [] });
  $("results").hidden = false;
  $("took").textContent = "comparing all windows …";
  $("notes").hidden = true;
  $("link").disabled = true;
  problem(null);
  hits.loading(12);
  try {
    const answer = await api.survey(kind, 12, filters.where(), signal);
    state.surveyed = surveyed(kind, answer);
    $("took").textContent = `${state.surveyed.length} of ${gallery.windows.toLocaleString("en")} windows in ${(answer.took_ms / 1000).toFixed(1)} s; choose one to search for it`;
    if (state.surveyed.length) hits.survey(state.surveyed, 0, gallery);
    else hits.nothing(kind === "motifs" ? "Nothing is repeated." : "No window has a neighbour to be compared with.", null);
  } catch (error) {
    if (error.name === "AbortError") return;
    $("took").textContent = "";
    hits.replace();
    problem(error, () => survey(kind));
  }
}

const searchFor = id => attempt(async () => {
  const one = state.surveyed.find(other => other.id === id);
  show({ kind: "record", name: one.record }, await api.record(one.record, openings.start()), [one.start_s, one.stop_s]);
  await search();
}, () => searchFor(id));

const again = () => { if (state.searched) search(); };

async function explain(id, scroll) {
  state.hit = id;
  hits.select(id);
  try {
    const answer = await api.explain({ ...state.request, hit: id }, searches.controller.signal);
    if (state.hit !== id) return;
    hits.panel.hidden = false;
    const { title, close } = showMatch(hits.panel, answer, 0, $("hits").clientWidth, gallery);
    hits.open();
    close.addEventListener("click", () => {
      hits.close();
      state.hit = null;
      remember();
      $("hits").querySelector('[aria-expanded="true"]')?.focus();
      hits.select(null);
    });
    if (scroll) { hits.panel.scrollIntoView({ block: "nearest", behavior: "smooth" }); title.focus({ preventScroll: true }); }
    remember();
  } catch (error) {
    if (error.name !== "AbortError") problem(error, () => explain(id, scroll));
  }
}

function remember() {
  const hash = toHash(state);
  $("link").disabled = hash === null;
  $("link").title = hash === null ? "this part is too long for a link" : "";
  if (hash !== null) history.replaceState(null, "", hash);
}

function problem(error, retry = null) {
  $("problem").hidden = error === null;
  if (error === null) return;
  $("results").hidden = false;
  const button = retry ? element("button", { class: "quiet", type: "button", onclick: retry }, "Try again") : null;
  $("problem").replaceChildren(element("span", {}, error.message.replaceAll("; ", ";\n")), ...(button ? [button] : []));
}

async function attempt(work, retry) {
  try { await work(); } catch (error) { if (error.name !== "AbortError") problem(error, retry); }
}

// ---- start

function offer() {
  $("scorers").append(...gallery.scorers.map(name => {
    const box = element("input", { type: "radio", name: "scorer", value: name, checked: name === gallery.default_scorer });
    box.addEventListener("change", () => { $("scorer-hint").textContent = SCORERS[name] || ""; again(); });
    return element("label", {}, box, name);
  }));
  $("scorer-hint").textContent = SCORERS[gallery.default_scorer] || "";
  $("protocol").append(...Object.entries(PROTOCOLS).map(([value, text]) => element("option", { value }, text)));
  $("clock-field").hidden = !gallery.rhythm;
  filters.show(gallery.fields);
  $("filters").hidden = gallery.fields.length === 0;
  if (matchMedia("(max-width: 860px)").matches) $("settings").open = $("filters").open = false;
  const rate = gallery.rate_hz === null ? "" : ` at ${gallery.rate_hz} Hz`;
  const channels = gallery.channels ? `, ${gallery.channels} channel${gallery.channels > 1 ? "s" : ""}` : "";
  $("gallery-summary").textContent = `${gallery.windows.toLocaleString("en")} windows of ${time(gallery.window_s)} ${unit(gallery)}${rate}${channels}`;
  for (const node of document.querySelectorAll(".gallery-unit")) node.textContent = unit(gallery);
  if (!gallery.searchable_by_signal) $("drop").hidden = true;
}

// How much the rhythm round a window counts beside its shape; as the model was fitted until somebody moves it.
function weigh(clock) {
  const text = `rhythm ${Math.round(100 * clock)} %`;
  $("clock").value = clock;
  $("clock").dataset.moved = "yes";
  $("clock").setAttribute("aria-valuetext", text);
  $("clock-value").textContent = text;
}

async function reopen() {
  const link = fromHash(location.hash);
  if (!link.source) return;
  const box = [...document.querySelectorAll("#scorers input")].find(one => one.value === link.scorer);
  if (box) { box.checked = true; $("scorer-hint").textContent = SCORERS[box.value] || ""; }
  $("protocol").value = link.protocol in PROTOCOLS ? link.protocol : "";
  if (link.k) $("k").value = link.k;
  $("gap").value = link.gap;
  $("tempos").checked = link.tempos;
  if (link.clock !== null) weigh(link.clock);
  filters.set(link.where);
  const signal = openings.start();
  if (link.source.kind === "file") show(link.source, link.source.signal, link.span);
  else if (link.source.kind === "record") show(link.source, await api.record(link.source.name, signal), link.span);
  else {
    const stored = await api.storedWindow(link.source.name, signal);
    show({ kind: "record", name: stored.record }, await api.record(stored.record, signal), [stored.start_s, stored.stop_s]);
  }
  await search(link.hit);
}

function listen() {
  $("file").addEventListener("change", () => { openFiles([...$("file").files]); $("file").value = ""; });
  addEventListener("dragover", event => { event.preventDefault(); document.body.classList.add("dragging"); });
  addEventListener("dragleave", event => { if (!event.relatedTarget) document.body.classList.remove("dragging"); });
  addEventListener("drop", event => {
    event.preventDefault();
    document.body.classList.remove("dragging");
    openFiles([...event.dataTransfer.files]);
  });
  let typing;
  $("record-find").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => attempt(listRecords), 150); });
  $("records").addEventListener("click", event => { const node = event.target.closest("li[data-name]"); if (node) pick(node.dataset.name); });
  $("records").addEventListener("keydown", recordKey);
  $("span").addEventListener("submit", event => { event.preventDefault(); search(); });
  $("start").addEventListener("change", () => { // behind the other edge the mark keeps its length
    const start = +$("start").value, [first, last] = state.span;
    plot.mark(start, start < last ? last : start + last - first);
  });
  $("stop").addEventListener("change", () => {
    const stop = +$("stop").value, [first, last] = state.span;
    plot.mark(stop > first ? first : stop - (last - first), stop);
  });
  $("rate").addEventListener("change", () => show(state.source, atRate(state.signal, +$("rate").value > 0 ? +$("rate").value : gallery.rate_hz)));
  for (const kind of ["motifs", "anomalies"]) $(kind).addEventListener("click", () => survey(kind));
  $("zoom-in").addEventListener("click", () => plot.zoom(1 / 1.6));
  $("zoom-out").addEventListener("click", () => plot.zoom(1.6));
  $("clock").addEventListener("input", () => weigh(+$("clock").value));
  for (const id of ["protocol", "k", "gap", "tempos", "clock"]) $(id).addEventListener("change", again);
  $("link").addEventListener("click", async () => {
    const done = await navigator.clipboard.writeText(location.href).then(() => "Copied", () => "Copy it from the address bar");
    $("link").textContent = done;
    setTimeout(() => { $("link").textContent = "Copy link"; }, 2000);
  });
  addEventListener("hashchange", () => attempt(reopen, () => attempt(reopen)));
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  const paint = theme => { root.dataset.theme = theme; plot.redraw(); };
  root.dataset.theme = localStorage.getItem("geopatch-theme") || (dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => { if (!localStorage.getItem("geopatch-theme")) paint(dark.matches ? "dark" : "light"); });
  $("theme").addEventListener("click", () => {
    localStorage.setItem("geopatch-theme", root.dataset.theme === "dark" ? "light" : "dark");
    paint(localStorage.getItem("geopatch-theme"));
  });
}

async function start() {
  gallery = await api.info();
  offer();
  await listRecords();
  await reopen();
  document.body.dataset.ready = "yes";
}

listen();
attempt(start, () => location.reload());
