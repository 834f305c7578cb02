// What stands around the grids: requests, slots, gates, what changed, the page that is looked at, the YAML, what differs.
"use strict";

function requests(view) {
  const facts = view.facts, tpb = facts.data.tokens_per_block;
  const rows = facts.all("request").filter(([[name]]) => view.wanted.request(name)).map(([[name]]) => {
    const now = facts.request(name), was = view.before.request(name), mark = (...fields) => {
      if (fields.some(field => view.differs(["request", name], REQUEST.indexOf(field)))) return " class=\"differs\"";
      return !was || fields.some(field => was[field] !== now[field]) ? " class=\"changed\"" : "";
    };
    if (now.status === "closed") {
      return `<tr class="closed"><th>${escape(name)}</th><td${mark("status")} colspan="5">closed</td></tr>`;
    }
    const share = tokens => now.capacity ? Math.round(100 * tokens / now.capacity) : 0;
    const lengths = `<span class="length" title="committed ${now.committed}, history ${now.history}, capacity ${now.capacity} tokens of ${tpb} a block">
      <span class="history" style="width:${share(now.history)}%"></span><span class="done" style="width:${share(now.committed)}%"></span></span>`;
    return `<tr data-request="${escape(name)}"><th>${escape(name)}</th>
      <td${mark("status")}><em class="dot ${now.status}"></em>${now.status}</td>
      <td${mark("phase")}><em class="phase ${now.phase}">${now.phase}</em></td>
      <td${mark("capacity", "history", "committed")}>${lengths} <span class="n">${now.history}/${now.capacity}</span></td>
      <td${mark("row", "batch")}>${now.row === null ? "" : `row ${now.row}${now.batch ? ` of ${escape(now.batch)}` : ""}`}</td>
      <td${mark("version", "dirty")} title="its version is that of step ${now.version}">${now.dirty ? `<em class="dirt dirty"></em>dirty` : "clean"}${
        view.differs(["request", name], REQUEST.indexOf("version")) ? `, version of step ${now.version}` : ""}</td></tr>`;
  });
  return rows.length ? `<table class="requests"><tbody>${rows.join("")}</tbody></table>` : "";
}

function pools(view) {
  return view.facts.all("pool").map(([[level, group], [slots, free, fenced]]) => {
    const was = view.before.get("pool", level, group), next = view.facts.get("evictable", level, group) || [];
    const mark = view.differs(["pool", level, group]) || view.differs(["evictable", level, group]) ? " differs"
      : was && was[1] !== free ? " changed" : "";
    const names = next.slice(0, 3).map(number => (view.facts.page(number) || { name: "?" }).name).join(", ");
    const used = slots - free;
    return `<div class="pool${mark}" title="${escape(next.length ? `would be evicted first: ${names}` : "no page can be evicted")}">
      <b>${level}</b> <span>${escape(group)}</span>
      <span class="gauge l${LEVELS.indexOf(level)}"><span style="width:${100 * (used - next.length) / Math.max(1, slots)}%"></span><span
        class="evictable" style="width:${100 * next.length / Math.max(1, slots)}%"></span></span>
      <span class="n">${free} free of ${slots}${fenced ? `, <span class="waits">${fenced} behind a gate</span>` : ""}${next.length ? `, ${next.length} evictable` : ""}</span></div>`;
  }).join("");
}

function work(view) {
  const gates = view.facts.all("gate").map(([[label], [step, ...waits]]) =>
    `<li class="${view.changed("gate", label) ? "changed" : ""}"><b>${escape(label)}</b> closed in step ${step} <span>${waits.length ? `holds up ${waits.map(escape).join(", ")}` : "holds up nothing"}</span></li>`);
  const reads = view.facts.all("read").filter(([, [state]]) => state === "pending").map(([[label]]) => `<li>read <b>${escape(label)}</b> pending</li>`);
  return gates.length + reads.length 
    ? `<section class="work"><h3>Queued device work</h3><ul>${gates.join("")}${reads.join("")}</ul></section>` : "";
}

function changed(step) {
  if (!step.changes.length) return `<p class="none">nothing</p>`;
  return `<dl class="changes">${step.changes.map(([subject, text, why]) =>
    `<dt>${escape(subject)}</dt><dd>${linked(text)}${why ? ` <span class="why">${linked(why)}</span>` : ""}</dd>`).join("")}</dl>`;
}

// The page that is looked at: where it is now, and what became of it so far.
function looked(steps, facts, number, upTo) {
  const page = number && facts.page(number);
  const story = [];
  let was;
  for (let step = 0; number && step <= upTo; step++) {
    const now = steps.at(step).page(number);
    if (!was && now) story.push([step, `new at ${LEVELS[now.level]}`]);
    else if (was && !now) story.push([step, "freed"]);
    else if (was && was.level !== now.level) story.push([step, `${LEVELS[was.level]} → ${LEVELS[now.level]}`]);
    else if (was && was.deferred !== now.deferred) story.push([step, now.deferred ? "deferred" : "deferred no more"]);
    was = now;
  }
  if (!story.length) return `<p class="none">Point at a page; click it to follow it.</p>`;
  const told = `<ol class="story">${story.map(([step, text]) =>
    `<li><a href="#" data-step="${step}">step ${step}</a> ${text} <span>${escape(steps.data.steps[step].verb)}</span></li>`).join("")}</ol>`;
  return (page ? about(page) : "<p>It is not there in this step.</p>") + told;
}

function about(page) {
  const lines = [`<b>${escape(page.name)}</b>`, `${LEVELS[page.level]} slot ${page.slot}, ${page.status}`];
  if (page.owners) lines.push(`locked by ${escape(page.owners)}`);
  else if (page.keepers) lines.push(`held by ${escape(page.keepers)}`);
  if (page.tokens !== null) lines.push(`in the tree as ${escape(page.tokens)}`);
  if (page.gates) lines.push(`<span class="waits">pending behind ${escape(page.gates)}</span>`);
  if (page.why) lines.push(`<span class="why">${escape(page.why)} (${rule(page.rule)})</span>`);
  return `<p class="about">${lines.join("<br>")}</p>`;
}

function source(data, lines, marked) {
  return `<pre class="source">${data.source.slice(lines[0] - data.first, lines[1] - data.first + 1).map((text, place) => {
    const number = lines[0] + place;
    return `<span class="${marked.includes(number) ? "marked" : ""}"><i>${number}</i>${escape(text) || " "}</span>`;
  }).join("")}</pre>`;
}

function failed(data) {
  const failure = data.failure, titles = data.systems;
  const found = failure.differences.slice(0, 24).map(one => {
    const rows = [];
    if (one.expected !== null) rows.push(["expected", one.expected]);
    if (titles.length > 1) rows.push([titles[0], one.values[0]], [titles[1], one.values[1]]);
    const rules = one.rules.length ? ` <span class="rules">${one.rules.map(rule).join(" ")}</span>` : "";
    const line = one.line === null ? "" : ` <span class="n">line ${one.line}</span>`;
    return `<li><b>${escape(one.subject)}</b>${line}${rules}<table>${rows.map(([who, value]) =>
      `<tr><th>${escape(who)}</th><td>${escape(value)}</td></tr>`).join("")}</table>
      ${one.detail.map(text => `<div class="detail">${linked(text)}</div>`).join("")}</li>`;
  });
  const more = failure.differences.length - found.length;
  const same = failure.differences.every(one => one.expected !== null && one.values[0] === one.values[1]);
  const what = same ? "Both systems differ from what the scenario says" : `${escape(titles[titles.length - 1])} differs from ${escape(titles[0])}`;
  return `<h2>${what}, at step ${failure.step}: <code>${escape(failure.verb)}</code></h2>
    <div class="both">${source(data, failure.lines, failure.marked)}<ol class="differences">${found.join("")}</ol></div>
    ${more > 0 ? `<p>and ${more} more differences</p>` : ""}
    <details><summary>As in the terminal</summary><pre class="report">${escape(failure.report)}</pre></details>`;
}
