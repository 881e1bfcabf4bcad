// Filters from the gallery's own metadata: chips where a field has up to a dozen values, else a range or text.

import { element } from "/page/draw.js";

const MAX_CHIPS = 12;

export class Filters {
  constructor(place, text, clear, changed) {
    Object.assign(this, { place, text, clear, changed });
    place.addEventListener("change", () => this.notify());
    text.addEventListener("change", () => this.notify());
    clear.addEventListener("click", event => { event.preventDefault(); this.reset(); this.notify(); });
  }

  notify() {
    const now = JSON.stringify(this.where());
    if (now === this.before) return;
    this.before = now;
    this.clear.hidden = now === "null";
    this.changed();
  }

  show(fields) {
    this.fields = fields;
    this.place.replaceChildren(...fields.map((field, n) => this.group(field, n)));
  }

  group(field, n) {
    const legend = element("legend", {}, field.name);
    if (field.distinct <= MAX_CHIPS) {
      const chips = field.values.map(({ value, windows }, v) => {
        const box = element("input", { type: "checkbox" });
        box.dataset.field = n;
        box.dataset.value = v;
        return element("label", { class: "chip", title: String(value) }, box, String(value), element("small", {}, windows.toLocaleString("en")));
      });
      return element("fieldset", { class: "group" }, legend, element("div", { class: "chips" }, ...chips));
    }
    const number = field.low !== null;
    const boxes = (number ? ["least", "most"] : ["is"]).map((kind, at) => {
      const box = element("input", { type: number ? "number" : "text", step: "any", placeholder: number ? String(at ? field.high : field.low) : "exactly" });
      box.setAttribute("aria-label", `${field.name}, ${kind}`);
      box.dataset.field = n;
      box.dataset.kind = kind;
      return element("span", { class: "field" }, box);
    });
    return element("fieldset", { class: "group" }, legend, element("div", { class: number ? "pair" : "" }, ...boxes));
  }

  // A mapping as the server takes it; null for all windows.
  where() {
    const parts = [];
    (this.fields || []).forEach((field, n) => {
      const boxes = [...this.place.querySelectorAll(`[data-field="${n}"]`)];
      const checked = boxes.filter(box => box.checked).map(box => field.values[box.dataset.value].value);
      if (checked.length) parts.push({ [field.name]: { in: checked } });
      for (const box of boxes.filter(box => box.dataset.kind && box.value !== "")) {
        const sign = { least: ">=", most: "<=", is: "==" }[box.dataset.kind];
        parts.push({ [field.name]: { [sign]: sign === "==" ? box.value : Number(box.value) } });
      }
    });
    if (this.text.value.trim()) parts.push(this.text.value.trim());
    return parts.length ? { and: parts } : null;
  }

  set(where) {
    this.reset();
    for (const part of where?.and || []) {
      if (typeof part === "string") { this.text.value = part; continue; }
      const [[name, rule]] = Object.entries(part);
      const n = this.fields.findIndex(field => field.name === name);
      for (const box of this.place.querySelectorAll(`[data-field="${n}"]`)) {
        if (rule.in) box.checked ||= rule.in.includes(this.fields[n].values[box.dataset.value]?.value);
        const sign = { least: ">=", most: "<=", is: "==" }[box.dataset.kind];
        if (sign && sign in rule) box.value = rule[sign];
      }
    }
    this.before = JSON.stringify(this.where());
    this.clear.hidden = this.before === "null";
  }

  reset() {
    for (const box of this.place.querySelectorAll("input")) { box.checked = false; if (box.dataset.kind) box.value = ""; }
    this.text.value = "";
  }
}
