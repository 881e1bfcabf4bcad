// The hits as small multiples, each drawn over the query.

import { bandsImage, chanceText, channel, clock, duration, element, isSound, median, path, range, scale, span, svg } from "/page/draw.js";

const WIDTH = 240, HEIGHT = 96;
const CHANCE = "How many windows of a gallery of this size would be as near by chance";

function centre(values) {
  const middle = median(values);
  return values.map(value => value === null ? null : value - middle);
}

// A hit that was moved and stretched to where the query fits best is drawn so; its window, where it was not.
function picture(query, { segment, window }, c) {
  const hit = segment ?? window, aligned = segment && query;
  if (!hit) return element("p", { class: "hint" }, "the gallery keeps no values of this window");
  const centred = [query, hit].map(window => window && centre(channel(window, c)));
  const longest = aligned ? duration(query) : Math.max(...[query, hit].filter(Boolean).map(duration));
  const x = scale(0, longest, 2, WIDTH - 2);
  const y = scale(...range(...centred.filter(Boolean)), HEIGHT - 4, 4);
  const drawn = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  if (isSound(hit.channels)) {
    drawn.append(bandsImage(hit, aligned ? clock(hit) * duration(hit) / duration(query) : clock(hit), x, 2, HEIGHT - 4));
    return drawn;
  }
  if (query) drawn.append(svg("path", { class: "line-query", d: path(centred[0], clock(query), x, y) }));
  const rate = aligned ? clock(hit) * duration(hit) / duration(query) : clock(hit);
  drawn.append(svg("path", { class: "line-hit", d: path(centred[1], rate, x, y) }));
  return drawn;
}

function certificateMeter(certificate) {
  if (!certificate) return null;
  const radius = certificate.radius;
  const label = radius === null ? "no certificate" : `certified to drift ${radius.toFixed(3)}`;
  const bar = element("span", { class: "meter" }, element("i"));
  bar.firstChild.style.width = `${Math.min(100, (radius || 0) * 400)}%`;
  return element("div", { class: "certificate", title: certificate.covers }, label, bar);
}

function card(hit, query, c, gallery) {
  const score = hit.score === null ? "" : hit.score.toFixed(3);
  const chance = hit.chance === null ? "" : `chance ${chanceText(hit.chance)}`;
  const tags = Object.entries(hit.metadata).map(([name, value]) =>
    element("span", { class: "tag", title: `${name}: ${value}` }, `${name} ${value}`));
  const clock = hit.start_time ? ` · ${hit.start_time.replace("1900-01-01T", "").replace("T", " ").replace(/(\.\d\d)\d+/, "$1")}` : "";
  const speed = hit.speed == null ? "" : ` · speed ${hit.speed.toFixed(2)}`;
  const where = `${hit.record} · ${span(hit.start_s, hit.stop_s, hit.window ?? gallery)}${speed}${clock}`;
  const node = element("div", { class: "hit", role: "button", tabIndex: -1 },
    element("header", {}, element("span", { class: "rank" }, `${hit.rank}`), element("span", { class: "where", title: hit.id }, where),
      element("span", { class: "score" }, score)),
    chance ? element("p", { class: "chance", title: CHANCE }, chance) : null,
    picture(query, hit, c), element("div", { class: "tags" }, ...tags), certificateMeter(hit.certificate));
  node.setAttribute("aria-label", `Hit ${hit.rank}: ${where}, score ${score}${chance && `, ${chance}`}`);
  node.setAttribute("aria-expanded", "false");
  node.dataset.id = hit.id;
  return node;
}

export class Hits {
  constructor(place, chosen) {
    this.place = place;
    this.chosen = chosen;
    place.addEventListener("click", event => {
      const node = event.target.closest(".hit");
      if (node) this.choose(node, true);
    });
    place.addEventListener("keydown", event => this.key(event));
    this.panel = element("section", { class: "card match", id: "match", hidden: true });
    this.panel.setAttribute("aria-labelledby", "match-title");
    addEventListener("resize", () => this.open());
  }

  loading(count) {
    this.replace();
    this.place.setAttribute("aria-busy", "true");
    this.place.append(...Array.from({ length: Math.min(count, 12) }, () => element("div", { class: "ghost" })));
  }

  show(answer, c, gallery) {
    this.replace(...answer.hits.map(hit => card(hit, answer.query.window, c, gallery)));
    if (this.place.firstChild) this.place.firstChild.tabIndex = 0;
  }

  // Windows that no query brought: each is drawn over the one nearest to it.
  survey(rows, c, gallery) {
    this.replace(...rows.map(row => card(row, row.other, c, gallery)));
    this.place.firstChild.tabIndex = 0;
  }

  nothing(line, clear) {
    const button = clear ? element("button", { class: "quiet", type: "button", onclick: clear }, "Clear the filters") : null;
    this.replace(element("div", { class: "nothing" }, element("p", {}, line), button));
  }

  replace(...nodes) {
    this.close();
    this.place.removeAttribute("aria-busy");
    this.place.inert = false;
    this.place.replaceChildren(...nodes);
  }

  // Hits of another query than the one that is shown: they can be seen, not chosen.
  outdate() {
    if (this.place.hasAttribute("aria-busy")) this.replace();
    this.close();
    this.select(null);
    this.place.inert = this.place.childElementCount > 0;
  }

  select(id) {
    for (const node of this.place.querySelectorAll(".hit")) {
      const own = node.dataset.id === id;
      node.setAttribute("aria-expanded", String(own));
      if (own) this.here(node, false);
    }
  }

  // The explanation opens below the row of the chosen hit.
  open() {
    const chosen = this.place.querySelector('[aria-expanded="true"]');
    if (this.panel.hidden || !chosen) return;
    this.panel.remove();
    const row = [...this.place.querySelectorAll(".hit")].filter(node => node.offsetTop === chosen.offsetTop);
    row.at(-1).after(this.panel);
  }

  close() {
    this.panel.hidden = true;
    this.panel.remove();
  }

  here(node, focus = true) {
    for (const other of this.place.querySelectorAll(".hit")) other.tabIndex = other === node ? 0 : -1;
    if (focus) node.focus();
  }

  choose(node, scroll) {
    this.here(node);
    this.chosen(node.dataset.id, scroll);
  }

  key(event) {
    const nodes = [...this.place.querySelectorAll(".hit")];
    const at = nodes.indexOf(document.activeElement);
    if (at < 0) return;
    const across = nodes.filter(node => node.offsetTop === nodes[0].offsetTop).length;
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + across, ArrowUp: at - across, Home: 0, End: nodes.length - 1 }[event.key];
    if (to !== undefined) this.here(nodes[Math.min(Math.max(to, 0), nodes.length - 1)]);
    else if (event.key === "Enter" || event.key === " ") this.choose(nodes[at], true);
    else return;
    event.preventDefault();
  }
}
