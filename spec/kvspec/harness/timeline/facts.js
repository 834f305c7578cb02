// The facts of every step, from their packed form (see delta.py), and what of them the picture asks for.
"use strict";

const LEVELS = ["gpu", "host", "disk"];
const PAGE = ["group", "block", "beam", "base", "name", "level", "slot", "status", "owners", "keepers", "tokens", "gates", "why",
  "rule", "deferred"];
const REQUEST = ["status", "phase", "capacity", "history", "committed", "row", "batch", "version", "dirty"];
const KEYFRAME = 16;

class Steps {
  constructor(data) {
    this.data = data;
    this.keys = data.keys.map(parts => parts.join("\u001f"));
    this.frames = [];
    this.recent = new Map();
  }

  get count() { return this.data.steps.length; }

  // The facts after a step; before the first there are none.
  at(number) {
    if (this.recent.has(number)) return this.recent.get(number);
    const facts = this.made(number);
    if (this.recent.size > 3) this.recent.delete(this.recent.keys().next().value);
    this.recent.set(number, facts);
    return facts;
  }

  made(number) {
    if (number < 0) return new Facts(new Map(), this.data);
    let from = Math.min(number, this.frames.length * KEYFRAME - 1);
    while (from > 0 && (from + 1) % KEYFRAME) from--;
    let now = from > 0 ? this.frames[(from + 1) / KEYFRAME - 1] : new Map();
    for (let step = from > 0 ? from + 1 : 0; step <= number; step++) {
      now = this.applied(now, this.data.steps[step].facts);
      if ((step + 1) % KEYFRAME === 0) this.frames[(step + 1) / KEYFRAME - 1] = now;
    }
    return new Facts(now, this.data);
  }

  // What the system under test shows at the step that diverges; null if nothing of it was seen.
  other() {
    const last = this.data.divergence;
    return last && new Facts(this.applied(this.at(this.count - 1).map, last.facts), this.data);
  }

  // By key, the places at which the two systems differ.
  marks() {
    return new Map((this.data.divergence ? this.data.divergence.marks : []).map(([key, places]) => [this.keys[key], places]));
  }

  applied(old, changes) {
    const now = new Map(old), texts = this.data.texts, plain = value => Array.isArray(value) ? texts[value[0]] : value;
    for (const [change, runs] of changes) {
      for (let i = 0; i < runs.length; i += 2) {
        for (let key = runs[i]; key < runs[i] + runs[i + 1]; key++) {
          if (change === 0) { now.delete(this.keys[key]); continue; }
          if (change[0] === 1) { now.set(this.keys[key], change[1].map(plain)); continue; }
          const value = (now.get(this.keys[key]) || []).slice(0, change[1]);
          while (value.length < change[1]) value.push(null);
          for (let at = 2; at < change.length; at += 2) value[change[at]] = plain(change[at + 1]);
          now.set(this.keys[key], value);
        }
      }
    }
    return now;
  }
}

class Facts {
  constructor(map, data) { this.map = map; this.data = data; }

  get(...key) { return this.map.get(key.join("\u001f")); }

  // Every fact of a kind: the rest of its key, and its value.
  all(kind) {
    const found = [];
    for (const [key, value] of this.map) {
      const parts = key.split("\u001f");
      if (parts[0] === kind) found.push([parts.slice(1), value]);
    }
    return found;
  }

  page(number) { return named(PAGE, this.get("page", number)); }

  request(name) { return named(REQUEST, this.get("request", name)); }

  // The blocks of the tree by their ways: for each end the numbers of the blocks down to it, those said before left out.
  ways() {
    const blocks = new Map(this.all("tree").map(([[number], value]) => [Number(number), value]));
    const inner = new Set([...blocks.values()].map(value => value[0]));
    const said = new Set(), ways = [];
    for (const [number] of blocks) {
      if (inner.has(number)) continue;
      const way = [];
      for (let at = number; at !== null && at !== undefined && blocks.has(at); at = blocks.get(at)[0]) way.unshift(at);
      ways.push(way.map(block => ({ number: block, value: blocks.get(block), again: said.has(block) })));
      way.forEach(block => said.add(block));
    }
    return ways;
  }
}

function named(fields, value) {
  return value && Object.fromEntries(fields.map((field, place) => [field, value[place]]));
}

function escape(text) {
  return String(text).replace(/[&<>"']/g, c => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" })[c]);
}

// Text with the rules in it as links.
function linked(text) {
  return escape(text).replace(/-&gt;/g, "→").replace(/\bR\d+(?:\.\d+)?\b/g, id => document.getElementById(id) ? rule(id) : id);
}

function rule(id) { return `<a class="to-rule" href="#${id}">${id}</a>`; }
