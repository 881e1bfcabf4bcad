// The OpenAPI document as a page: every operation with what it takes, what it answers, and a line to try it.

import { openapi } from "/page/api.js";
import { element } from "/page/draw.js";

const follow = (document, schema) => schema?.$ref ? schema.$ref.slice(2).split("/").reduce((at, name) => at[name], document) : schema;

function kind(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  const any = schema.anyOf || schema.oneOf;
  if (any) return any.map(kind).join(" | ");
  return schema.type === "array" ? `list of ${kind(schema.items)}` : schema.type || "any";
}

function fields(document, schema) {
  const target = follow(document, schema);
  const rows = Object.entries(target?.properties || {}).map(([name, one]) => element("tr", {},
    element("td", {}, element("code", {}, name), (target.required || []).includes(name) ? " *" : ""),
    element("td", {}, kind(one)), element("td", {}, one.description || (one.default !== undefined ? `default ${JSON.stringify(one.default)}` : ""))));
  return rows.length ? element("div", { class: "scroll" }, element("table", {}, element("tbody", {}, ...rows))) : "";
}

function parameters(operation) {
  const rows = (operation.parameters || []).map(one => element("tr", {}, element("td", {}, element("code", {}, one.name), one.required ? " *" : ""),
    element("td", {}, kind(one.schema)), element("td", {}, one.description || "")));
  return rows.length ? element("div", { class: "scroll" }, element("table", {}, element("tbody", {}, ...rows))) : "";
}

function curl(path, method, operation, write) {
  const body = Object.keys(operation.requestBody?.content || {})[0] || "";
  const sent = body.includes("json") ? ` \\\n  -H 'Content-Type: application/json' -d '{…}'` : body ? ` \\\n  -F file=@signal.csv` : "";
  return `curl -X ${method.toUpperCase()} '${location.origin}${path}'${write ? ` \\\n  -H 'Authorization: Bearer WRITE-TOKEN'` : ""}${sent}`;
}

function shown(document, path, method, operation) {
  const write = (operation.tags || []).includes("write");
  const body = Object.values(operation.requestBody?.content || {})[0]?.schema;
  const answers = Object.entries(operation.responses).map(([status, one]) => `${status} ${one.description}`).join("\n");
  return element("article", { class: "card" }, element("details", {},
    element("summary", {}, element("b", { class: `verb${write ? " write" : ""}` }, method.toUpperCase()), element("code", {}, path), element("span", {}, operation.description || "")),
    parameters(operation), fields(document, body), element("pre", {}, curl(path, method, operation, write)), element("pre", {}, answers)));
}

try {
  const document_ = await openapi();
  document.getElementById("summary").textContent = document_.info.description;
  document.getElementById("operations").append(...Object.entries(document_.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => shown(document_, path, method, operation))));
} catch (error) {
  document.getElementById("summary").textContent = error.message;
}
document.documentElement.dataset.theme = localStorage.getItem("geopatch-theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
