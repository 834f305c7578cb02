// Grids of requests x blocks, one a layer group, and of the tables as published.
"use strict";

// What is drawn of one system: its facts, those of the step before, the marks of what differs, which rows are wanted.
// own: whether the step before is this system's own; the slots of another one say nothing.
class View {
  constructor(facts, before, marks, wanted, own) {
    this.own = own;
    this.facts = facts;
    this.before = before;
    this.marks = marks;
    this.wanted = wanted;
  }

  // Whether a place in the value of a fact differs between the systems; any place if none is given.
  differs(key, place) {
    const places = this.marks.get(key.join("\u001f"));
    return places !== undefined && (place === undefined || places.includes(place));
  }

  changed(...key) { return String(this.before.get(...key)) !== String(this.facts.get(...key)); }
}

function grids(view) {
  return view.facts.data.groups.map((group, place) => grid(view, group, place)).join("");
}

function grid(view, group, place) {
  if (!view.wanted.group(group.name)) return "";
  const rows = [], facts = view.facts;
  for (const [[name, of, beam], pages] of facts.all("pages")) {
    if (of === group.name && view.wanted.request(name)) rows.push(requestRow(view, group, name, beam, pages));
  }
  const ways = facts.ways().map(way => treeRow(view, place, way)).filter(Boolean);
  const columns = Math.max(1, ...rows.map(row => row.columns), ...ways.map(row => row.columns));
  const ruler = Array.from({ length: columns }, (_, b) => `<i>${columns <= 32 || b % 8 === 0 ? b : ""}</i>`).join("");
  const empty = rows.length + ways.length ? "" : `<p class="none">no page yet</p>`;
  const head = `<div class="row ruler"><span class="who">block</span><span class="cells">${ruler}</span><span class="end"></span></div>`;
  return `<figure class="grid" data-group="${escape(group.name)}" style="--columns:${columns}" data-columns="${columns}" data-large="1">
    <figcaption><b>${escape(group.name)}</b> <span>${escape(group.kind)}</span></figcaption>
    <div class="scroll">${empty || head}${rows.map(row => row.html).join("")}
    ${ways.length ? `<div class="row tree-head"><span class="who">prefix tree</span></div>` : ""}${ways.map(row => row.html).join("")}</div>
  </figure>`;
}

function requestRow(view, group, name, beam, pages) {
  const facts = view.facts, request = facts.request(name), tpb = facts.data.tokens_per_block;
  const levels = facts.get("levels", name, group.name, beam) || [];
  const key = ["levels", name, group.name, beam];
  const eligible = (facts.get("eligible", name, group.name, beam) || [0])[0];
  const was = view.before.get("pages", name, group.name, beam) || [];
  const cells = pages.map((number, block) => {
    const filled = group.kind === "state" ? 1 : Math.max(0, Math.min(1, (request.history - block * tpb) / tpb));
    const classes = [];
    if (number !== null && levels[block] === null) classes.push(request.status === "active" ? "stale" : "unseen");
    if (view.differs(key, block) || view.differs(["pages", name, group.name, beam], block)) classes.push("differs");
    if (was[block] !== number && number !== null) classes.push("changed");
    return cell(view, number, filled, classes, levels[block]);
  });
  const gone = was.slice(pages.length).some(number => number !== null) ? " lost" : "";
  const changed = view.changed("eligible", name, group.name, beam) ? " changed" : "";
  const differs = view.differs(["eligible", name, group.name, beam]) ? " differs" : "";
  const count = request.phase === "decode" && group.kind.startsWith("sparse")
    ? `<span class="eligible${changed}${differs}" title="eligible: leading blocks of history on the host (R6.3)">${eligible} eligible</span>` : "";
  const bar = eligible ? `<span class="bar" style="--eligible:${eligible}"></span>` : "";
  const letters = levels.map(level => level === null ? "." : LEVELS[level][0].toUpperCase()).join("");
  const label = `${name}${Number(beam) ? ` beam ${beam}` : ""}`;
  return {
    columns: pages.length,
    html: `<div class="row ${request.status}${gone}" data-request="${escape(name)}">
      <span class="who" title="${escape(label)}: ${request.status}, ${request.phase}"><em class="dot ${request.status}"></em>${escape(label)}
      <em class="phase ${request.phase}">${request.phase}</em></span>
      <span class="cells" role="img" aria-label="${escape(label)} in ${escape(group.name)}: ${letters}">${cells.join("")}${bar}</span>
      <span class="end">${count}</span></div>`,
  };
}

function treeRow(view, place, way) {
  if (!way.some(block => block.value[3 + place] !== null)) return null;
  const cells = way.map(block => {
    const number = block.value[3 + place];
    if (block.again) return `<i class="cell again"></i>`;
    const differs = view.differs(["tree", block.number], 3 + place) ? ["differs"] : [];
    return number === null ? `<i class="cell link ${differs.join("")}" title="in the tree as a link, without a page here (R3.9)"></i>`
      : cell(view, number, 1, ["of-tree", ...differs], undefined);
  });
  const tokens = way[way.length - 1].value[2];
  return {
    columns: way.length,
    html: `<div class="row tree"><span class="who" title="tokens ${escape(tokens)}">${escape(tokens)}</span>
      <span class="cells" role="img" aria-label="tree ${escape(tokens)}">${cells.join("")}</span><span class="end"></span></div>`,
  };
}

// One page: coloured by its level (by what the snapshot shows, where a request has it mapped), filled as far as history reaches.
function cell(view, number, filled, classes, shown) {
  const page = number === null ? null : view.facts.page(number);
  if (!page) return `<i class="cell empty ${classes.join(" ")}"></i>`;
  const level = shown === undefined || shown === null ? page.level : shown;
  const was = view.before.page(number);
  classes.push(`l${level}`, page.status);
  if (page.tokens !== null) classes.push("committed");
  if (page.deferred) classes.push("deferred");
  if (page.gates) classes.push("pending");
  if (was && (was.level !== page.level || (view.own && was.slot !== page.slot))) classes.push("changed", "moved", `from${was.level}`);
  if (was && (was.status !== page.status || was.deferred !== page.deferred)) classes.push("changed");
  else if (was && was.keepers !== page.keepers || was && was.owners !== page.owners) classes.push("touched");
  if (!was) classes.push("changed", "new");
  if (view.differs(["page", number])) classes.push("differs");
  const owners = page.owners ? page.owners.split(", ").length : 0;
  return `<i class="cell ${classes.join(" ")}" data-page="${number}" style="--filled:${Math.round(filled * 100)}%">${owners > 1 ? owners : ""}</i>`;
}

function tables(view) {
  const facts = view.facts;
  return facts.all("batch").map(([[name], [rows, blocks, upload, published]]) => {
    const members = Array.from({ length: rows }, (_, row) => facts.get("member", name, row));
    const groups = facts.data.groups.filter(group => facts.get("slots", name, group.name, 0) && view.wanted.group(group.name));
    const state = upload ? `<span class="waits">upload pending behind ${escape(upload)}</span>`
      : published < 0 ? "not published yet" : `published in step ${published}`;
    const inner = groups.map(group => table(view, name, group.name, members, blocks)).join("");
    return `<figure class="table"><figcaption><b>${escape(name)}</b> <span>${state}</span></figcaption>${inner}</figure>`;
  }).join("");
}

function table(view, name, group, members, blocks) {
  const facts = view.facts;
  const used = Math.max(1, ...members.map((_, row) => facts.get("slots", name, group, row).findLastIndex(slot => slot >= 0) + 1));
  const columns = Math.min(blocks, Math.max(used, 8));
  const rows = members.map(([member, dirty, behind], row) => {
    if (member !== null && !view.wanted.request(member)) return "";
    const slots = facts.get("slots", name, group, row), entries = facts.get("entries", name, group, row);
    const at = facts.get("at", name, group, row), count = facts.get("count", name, group, row)[0];
    const key = ["entries", name, group, row];
    const cells = slots.slice(0, columns).map((slot, block) => {
      const classes = ["cell", at[block] === null ? (slot < 0 ? "empty" : "unknown") : `l${at[block]}`];
      const old = (view.before.get("slots", name, group, row) || [])[block];
      if (old !== undefined && ((view.own && old !== slot) || (view.before.get(...["at", ...key.slice(1)]) || [])[block] !== at[block])) classes.push("changed");
      if (view.differs(key, block) || view.differs(["at", ...key.slice(1)], block)) classes.push("differs");
      if (block < count) classes.push("counted");
      const what = slot < 0 ? "-" : `${entries[block]}: ${at[block] === null ? "" : LEVELS[at[block]]} slot ${slot}`;
      return `<i class="${classes.join(" ")}" title="${escape(what)}">${slot < 0 ? "" : slot}</i>`;
    }).join("");
    const changed = view.changed("count", name, group, row) ? " changed" : "";
    const differs = view.differs(["count", name, group, row]) ? " differs" : "";
    const dirt = view.differs(["member", name, row]) ? " differs" : view.changed("member", name, row) ? " changed" : "";
    return `<div class="row"><span class="who"><em class="dirt ${dirty ? "dirty" : "clean"}${dirt}" title="${dirty ? "dirty: not what was last published (R8.3)" : "clean"}"></em>
      ${row} ${escape(member === null ? "-" : member)}</span><span class="cells">${cells}</span>
      <span class="end"><span class="count${changed}${differs}" title="num_blocks">${count}</span>${behind ? `<span class="waits" title="the device shows an older publication">behind</span>` : ""}</span></div>`;
  }).join("");
  return `<div class="of-group" data-columns="${columns}"><span class="group-name">${escape(group)}${columns < blocks ? `, ${columns} of ${blocks} blocks` : ""}</span><div class="scroll">${rows}</div></div>`;
}
