// One hit explained: the query above, the hit below, and ribbons between the patches that match.

import { bandsImage, chanceText, channel, clock, duration, element, hue, isSound, path, range, scale, span, svg, time, unit } from "/page/draw.js";

const LINE = 110, BETWEEN = 110, LEFT = 8, PATH_BANDS = 40;

// The steps of a path of patches, each from halfway to the one before it to halfway to the one after it.
function sideBySide(matches) {
  const middle = ([start, stop]) => (start + stop) / 2;
  return matches.map((match, n) => Object.fromEntries(["query_s", "hit_s"].map(side => {
    const here = middle(match[side]), before = matches[n - 1]?.[side], after = matches[n + 1]?.[side];
    return [side, [before ? (middle(before) + here) / 2 : match[side][0], after ? (here + middle(after)) / 2 : match[side][1]]];
  })));
}

// Parts of the query and of the hit that match, weakest first; the path of dtw is cut into pieces.
function bands({ matches, path_s: steps, ordered }, of) {
  if (steps) {
    const cuts = Array.from({ length: PATH_BANDS + 1 }, (_, n) => steps[Math.floor(n * (steps.length - 1) / PATH_BANDS)]);
    return cuts.slice(1).map((last, n) => ({ query: [cuts[n][0], last[0]], hit: [cuts[n][1], last[1]], strength: 0.6, title: "" }));
  }
  const drawn = ordered ? sideBySide(matches) : matches;
  const ranked = matches.map((match, n) => ({ ...match, ...drawn[n], match })).sort((a, b) => a.similarity - b.similarity);
  const low = ranked[0]?.similarity ?? 0, high = ranked.at(-1)?.similarity ?? 0;
  return ranked.map(({ query_s, hit_s, match }) => ({
    query: query_s, hit: hit_s, strength: (match.similarity - low) / Math.max(high - low, 1e-6),
    title: `query ${span(...match.query_s, of)} matches hit ${span(...match.hit_s, of)}, similarity ${match.similarity.toFixed(3)}`,
  }));
}

function figure(query, hit, ribbons, c, width) {
  const longest = Math.max(duration(query), duration(hit));
  const x = scale(0, longest, LEFT, width - LEFT);
  const top = 20, middle = top + LINE, bottom = middle + BETWEEN, height = bottom + LINE + 22;
  const drawn = svg("svg", { class: "figure", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Which patch of the query matches which patch of the hit" });
  for (const band of ribbons) {
    const colour = hue((band.query[0] + band.query[1]) / 2 / duration(query));
    const [a, b, p, q] = [x(band.query[0]), x(band.query[1]), x(band.hit[0]), x(band.hit[1])];
    const half = (middle + bottom) / 2;
    const shape = `M${a} ${middle}C${a} ${half} ${p} ${half} ${p} ${bottom}L${q} ${bottom}C${q} ${half} ${b} ${half} ${b} ${middle}Z`;
    for (const [y, low, high] of [[top, a, b], [bottom, p, q]]) {
      drawn.append(svg("rect", { x: low, y, width: Math.max(high - low, 0.5), height: LINE, fill: colour, "fill-opacity": 0.05 + 0.1 * band.strength }));
    }
    drawn.append(svg("path", { class: "ribbon", d: shape, fill: colour, "fill-opacity": 0.12 + 0.5 * band.strength }, svg("title", {}, band.title)));
  }
  for (const [window, y] of [[query, top], [hit, bottom]]) {
    const values = channel(window, c);
    for (const mark of window.anchors ?? []) {
      const at = x(mark / clock(window));
      if (mark >= 0 && mark < window.values.length) drawn.append(svg("line", { class: "anchor", x1: at, x2: at, y1: y, y2: y + LINE }));
    }
    if (isSound(window.channels)) drawn.append(bandsImage(window, clock(window), x, y + 4, LINE - 8));
    else drawn.append(svg("path", { class: "line-strong", d: path(values, clock(window), x, scale(...range(values), y + LINE - 8, y + 8)) }));
  }
  drawn.append(svg("text", { x: LEFT, y: 13 }, "query"), svg("text", { x: LEFT, y: height - 6 }, "hit"));
  drawn.append(svg("text", { x: width - LEFT, y: height - 6, "text-anchor": "end" }, `${time(longest)} ${unit(hit)}`));
  return drawn;
}

function fact(name, ...content) {
  return element("div", {}, element("dt", {}, name), element("dd", {}, ...content));
}

function table(matches, of) {
  const head = element("tr", {}, ...[`query, ${unit(of)}`, `hit, ${unit(of)}`, "similarity", "share"].map(name => element("th", { scope: "col" }, name)));
  const rows = matches.map(match => element("tr", {}, ...[
    ...[match.query_s, match.hit_s].map(([start, stop]) => `${time(start)}–${time(stop)}`),
    match.similarity.toFixed(3), `${(match.weight * 100).toFixed(1)} %`].map(text => element("td", {}, text))));
  return element("div", { class: "scroll" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)));
}

function certificateFacts(certificate) {
  if (!certificate) return [];
  const { radius, covers } = certificate;
  return [fact("certificate", ...(radius === null ? ["none"] : ["drift below ", element("strong", {}, radius.toFixed(4))])), fact("what it covers", covers)];
}

export function showMatch(place, answer, c, across, gallery) {
  const { hit, query } = answer, why = hit.explanation, of = hit.window ?? gallery;
  const close = element("button", { class: "quiet", type: "button", id: "close-match" }, "Close");
  const title = element("h2", { id: "match-title", tabIndex: -1 }, `Why hit ${hit.rank}: ${hit.record}, ${span(hit.start_s, hit.stop_s, of)}`);
  const row = element("div", { class: "row" }, title, element("p", { class: "note" }, `${hit.scorer} ${(hit.score ?? 0).toFixed(3)} · cosine ${hit.cosine.toFixed(3)}${hit.rhythm ? `, of which rhythm ${hit.rhythm.toFixed(3)}` : ""}${hit.chance === null ? "" : ` · chance ${chanceText(hit.chance)}`}`), close);
  close.style.marginLeft = "auto";
  const width = Math.max(across - 36, 260);
  const picture = query.window && hit.window ? figure(query.window, hit.window, bands(why, of), c, width)
    : element("p", { class: "hint" }, "the gallery keeps no values to draw");
  const facts = element("dl", { class: "facts" }, fact("score", why.note), ...certificateFacts(hit.certificate),
    ...Object.entries(hit.metadata).map(([name, value]) => fact(name, String(value))), fact("id", hit.id));
  const all = element("details", {}, element("summary", {}, `${why.matches.length} matching patches`), table(why.matches, of));
  place.replaceChildren(row, picture, facts, all);
  return { title, close };
}
