// One timeline: its controls, and drawing the step that they choose.
"use strict";

const LEGEND = `<span><i class="cell l0 locked"></i>GPU</span><span><i class="cell l1 locked"></i>host</span><span><i class="cell l2 locked"></i>disk</span>
  <span><i class="cell l1 held"></i>held</span><span><i class="cell l1 droppable"></i>droppable</span>
  <span><i class="cell l0 locked" style="--filled:40%"></i>history so far</span><span><i class="cell l0 locked committed"></i>in the tree</span>
  <span><i class="cell l0 locked">2</i>owners</span><span><i class="cell l0 locked deferred"></i>deferred</span>
  <span><i class="cell l1 locked pending"></i>pending</span><span><i class="cell l1 locked changed"></i>changed in this step</span>`;

class Timeline {
  constructor(root) {
    this.root = root;
    this.data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
    this.steps = new Steps(this.data);
    this.step = 0;
    this.page = 0;
    this.timer = 0;
    this.words = [];
    this.frame();
    this.listen();
    const wanted = Number((location.hash.match(new RegExp(`^#${root.id}-step-(\\d+)$`)) || [])[1]);
    this.step = Math.min(this.last, Number.isInteger(wanted) ? wanted : this.data.failure ? this.last : 0);
    this.slider.value = this.step;
    if (this.seen) this.draw();
  }

  // Whether it can be seen at all; one that cannot is drawn when it first can.
  get seen() { return this.root.checkVisibility(); }

  // The last step that can be shown: one that an exception broke off shows what was there before it.
  get last() { return Math.max(0, this.steps.count - 1); }

  get broken() { return this.data.failure && !this.data.divergence; }

  at(name) { return this.root.querySelector(`.at-${name}`); }

  frame() {
    const data = this.data, systems = data.systems;
    const title = systems.length > 1 ? `${systems[1]} against ${systems[0]}` : systems[0];
    const stop = data.stopped ? `<p class="stopped">${escape(data.stopped)}</p>` : "";
    this.root.insertAdjacentHTML("beforeend", `
      <header><h1>${escape(data.name)}</h1>
        <p><code>${escape(data.file)}:${data.line}</code> · ${escape(title)} · <span class="rules">${data.rules.map(rule).join(" ")}</span></p>${stop}</header>
      <div class="controls">
        <div class="buttons"><button data-go="first" title="First step (Home)" aria-label="First step">|◀</button>
          <button data-go="back" title="Step back (←)" aria-label="Step back">◀</button>
          <button data-go="play" class="play" title="Play (space)" aria-label="Play">▶▶</button>
          <button data-go="next" title="Next step (→)" aria-label="Next step">▶</button>
          <button data-go="end" title="Last step (End)" aria-label="Last step">▶|</button></div>
        <div class="way"><div class="track" aria-hidden="true"></div>
          <input type="range" min="0" max="${this.last}" value="0" step="1" aria-label="Step"></div>
        <input type="search" placeholder="Filter: request, group, verb …  ( / )" aria-label="Filter">
      </div>
      <div class="now at-now" aria-live="polite"></div>
      <div class="at-failure failure" hidden></div>
      <div class="body">
        <ol class="steps at-steps" aria-label="Steps"></ol>
        <main class="sides at-sides"></main>
        <aside><section><h3>What changed</h3><div class="at-changed"></div></section>
          <section><h3>Page</h3><div class="at-page"></div></section>
          <section class="in-file"><h3>In the file</h3><div class="at-source"></div></section></aside>
      </div>
      <div class="legend">${LEGEND}</div><div class="tip" role="tooltip" hidden></div>`);
    const failing = data.failure ? data.failure.step : -1;
    this.at("steps").innerHTML = data.steps.map((step, place) => `<li data-step="${place}" class="${step.error ? "error" : ""}${step.number === failing ? " failing" : ""}">
      <i>${step.number}</i> <b>${escape(step.verb)}</b> ${escape(step.arguments)} <span>${escape(step.said)}</span></li>`).join("");
    this.root.querySelector(".track").innerHTML = data.steps.map((step, place) =>
      `<i data-step="${place}" class="${step.number === failing ? "failing" : ""}" style="--much:${Math.min(1, Math.log2(1 + step.changes.length) / 4)}"></i>`).join("");
    this.slider = this.root.querySelector("input[type=range]");
    this.search = this.root.querySelector("input[type=search]");
    this.found = data.steps.map(step => [step.verb, step.arguments, step.said, step.message, step.note,
      ...step.changes.map(one => one.join(" "))].join(" ").toLowerCase());
  }

  listen() {
    const root = this.root;
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
    this.search.addEventListener("input", () => this.filter(this.search.value));
    root.addEventListener("click", event => {
      const step = event.target.closest("[data-step]"), page = event.target.closest("[data-page]"), go = event.target.closest("[data-go]");
      if (step) { event.preventDefault(); this.go(Number(step.dataset.step)); }
      if (page) { this.page = Number(page.dataset.page) === this.page ? 0 : Number(page.dataset.page); this.draw(); }
      if (go) this.press(go.dataset.go);
    });
    root.addEventListener("pointerover", event => this.point(event.target.closest("[data-page]"), event));
    root.addEventListener("pointerleave", () => this.point(null));
    new ResizeObserver(() => { if (!this.drawn && this.seen) this.draw(); else this.fit(); }).observe(root);
  }

  press(what) {
    if (what === "play") return this.play(!this.timer);
    this.play(false);
    this.go({ first: 0, end: this.last, back: this.next(-1), next: this.next(1) }[what]);
  }

  key(event) {
    if (event.target.matches("input[type=search], select")) {
      if (event.key === "Escape") { this.search.value = ""; this.filter(""); this.search.blur(); }
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    // On a page with more than timelines the keys that scroll are the page's, unless one is inside the timeline.
    const alone = document.body.classList.contains("timeline-page") || this.root.contains(event.target);
    if (!alone && !event.key.startsWith("Arrow")) return;
    const moves = { ArrowLeft: this.next(-1), ArrowRight: this.next(1), Home: 0, End: this.last, PageUp: this.step - 10, PageDown: this.step + 10 };
    if (event.key in moves) { event.preventDefault(); this.play(false); this.go(moves[event.key]); }
    if (event.key === " " && !event.target.matches("button, a, summary")) { event.preventDefault(); this.play(!this.timer); }
    if (event.key === "/") { event.preventDefault(); this.search.focus(); }
    if (event.key === "Escape") { this.page = 0; this.draw(); }
  }

  // The next step that the filter lets through; the step itself if there is none that way.
  next(way) {
    for (let step = this.step + way; step >= 0 && step <= this.last; step += way) {
      if (this.passes(step)) return step;
    }
    return this.step;
  }

  passes(step) { return this.words.every(word => this.found[step].includes(word)); }

  play(on) {
    clearInterval(this.timer);
    this.timer = on ? setInterval(() => { const to = this.next(1); if (to === this.step) this.play(false); else this.go(to); }, 900) : 0;
    this.root.querySelector(".play").classList.toggle("on", on);
  }

  filter(text) {
    this.words = text.toLowerCase().split(/\s+/).filter(Boolean);
    for (const item of this.at("steps").children) item.hidden = !this.passes(Number(item.dataset.step));
    for (const item of this.root.querySelector(".track").children) item.classList.toggle("out", !this.passes(Number(item.dataset.step)));
    this.draw();
  }

  // Which rows the filter wants: where a word names requests or groups, those; where it names none, all.
  wanted() {
    const steps = this.steps, names = steps.data.keys.filter(key => key[0] === "request").map(key => key[1]);
    const pick = all => {
      const picked = all.filter(name => this.words.some(word => name.toLowerCase() === word
        || (!all.some(other => other.toLowerCase() === word) && name.toLowerCase().includes(word))));
      return name => !picked.length || picked.includes(name);
    };
    return { request: pick(names), group: pick(steps.data.groups.map(group => group.name)) };
  }

  go(step) {
    this.step = Math.max(0, Math.min(this.last, step));
    this.slider.value = this.step;
    try { history.replaceState(null, "", `#${this.root.id}-step-${this.step}`); } catch { /* a page without an address */ }
    this.draw();
  }

  draw() {
    const data = this.data, step = data.steps[this.step];
    this.drawn = true;
    if (!step) { this.at("now").textContent = "No step was carried out."; if (data.failure) this.fail(); return; }
    const facts = this.steps.at(this.step), before = this.steps.at(this.step - 1), wanted = this.wanted();
    const diverges = data.divergence && this.step === this.last;
    const marks = diverges ? this.steps.marks() : new Map();
    const said = diverges && data.divergence.said !== step.said ? `${step.said || "nothing"} (${data.systems[0]}), ${data.divergence.said || "nothing"} (${data.systems[1]})` : step.said;
    this.at("now").innerHTML = `<span class="n">step ${step.number} of ${this.steps.count - 1}</span> <b>${escape(step.verb)}</b> <code>${escape(step.arguments)}</code>
      <span class="${step.error ? "error" : "said"}">${escape(said)}</span> ${step.message ? `<span class="message">${linked(step.message)}</span>` : ""}
      ${step.note ? `<p class="note">${linked(step.note)}</p>` : ""}`;
    const kept = [...this.root.querySelectorAll(".scroll")].map(box => box.scrollLeft);
    const sides = [this.side(new View(facts, before, marks, wanted, true), data.systems.length > 1 ? diverges ? `${data.systems[0]} <span>reference</span>` : "" : "")];
    if (diverges) sides.push(this.side(new View(this.steps.other(), before, marks, wanted, false), `${escape(data.systems[1])} <span>under test</span>`));
    this.at("sides").innerHTML = sides.join("");
    this.at("sides").classList.toggle("two", Boolean(diverges));
    this.root.querySelectorAll(".scroll").forEach((box, place) => { box.scrollLeft = kept[place] || 0; });
    this.at("changed").innerHTML = changed(step);
    this.at("page").innerHTML = looked(this.steps, facts, this.page, this.step);
    const marked = data.failure && data.failure.step === step.number ? data.failure.marked : [];
    this.at("source").innerHTML = source(data, step.lines, marked);
    const failing = data.failure && this.step === this.last;
    this.root.querySelector(".in-file").hidden = failing;
    if (failing) this.fail(); else this.at("failure").hidden = true;
    for (const one of this.root.querySelectorAll(".steps .here, .track .here")) one.classList.remove("here");
    const here = this.at("steps").children[this.step];
    here.classList.add("here");
    this.root.querySelector(".track").children[this.step].classList.add("here");
    const list = this.at("steps");
    if (here.offsetTop < list.scrollTop || here.offsetTop + here.offsetHeight > list.scrollTop + list.clientHeight) {
      list.scrollTop = here.offsetTop - list.clientHeight / 2;
    }
    this.fit();
    this.follow(this.page, "followed");
  }

  fail() {
    this.at("failure").innerHTML = failed(this.data);
    this.at("failure").hidden = false;
  }

  side(view, title) {
    return `<div class="side">${title ? `<h2>${title}</h2>` : ""}${requests(view)}<div class="grids">${grids(view)}</div><div class="grids">${tables(view)}</div>
      <div class="pools">${pools(view)}</div>${work(view)}</div>`;
  }

  // Cells as large as the columns allow.
  fit() {
    for (const box of this.root.querySelectorAll("[data-columns]")) {
      const style = getComputedStyle(box), room = box.clientWidth - parseFloat(style.getPropertyValue("--who")) - parseFloat(style.getPropertyValue("--end")) - 42;
      const each = Math.floor(room / Number(box.dataset.columns)), gap = each < 12 ? 1 : 2;
      const size = Math.max(6, Math.min(box.dataset.large ? 38 : 26, each - gap));
      box.style.setProperty("--gap", `${gap}px`);
      box.style.setProperty("--cell", `${size}px`);
      box.classList.toggle("small", size < 16);
    }
  }

  follow(page, name) {
    for (const one of this.root.querySelectorAll(`.cell.${name}`)) one.classList.remove(name);
    if (page) for (const one of this.root.querySelectorAll(`.cell[data-page="${page}"]`)) one.classList.add(name);
  }

  point(cell, event) {
    const tip = this.root.querySelector(".tip");
    this.follow(cell ? cell.dataset.page : 0, "pointed");
    tip.hidden = !cell;
    if (!cell) return;
    const inOther = this.data.divergence && this.step === this.last && cell.closest(".side:nth-child(2)");
    const page = (inOther ? this.steps.other() : this.steps.at(this.step)).page(cell.dataset.page);
    if (!page) { tip.hidden = true; return; }
    tip.innerHTML = about(page);
    const box = this.root.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(event.clientX - box.left + 14, box.width - tip.offsetWidth - 8))}px`;
    tip.style.top = `${event.clientY - box.top + 18}px`;
  }
}

const timelines = [...document.querySelectorAll("section.timeline")].map(root => new Timeline(root));
const which = document.getElementById("which");
if (which) {
  timelines.forEach((one, place) => which.add(new Option(one.data.name + (one.data.failure ? " — differs" : ""), place)));
  which.addEventListener("change", () => timelines.forEach((one, place) => {
    one.root.hidden = place !== Number(which.value);
    if (!one.root.hidden) one.draw();
  }));
}
// Keys go to the timeline that is seen most of.
document.addEventListener("keydown", event => {
  if (document.getElementById("rule").open) return;
  const seen = one => { const box = one.root.getBoundingClientRect(); return Math.min(box.bottom, innerHeight) - Math.max(box.top, 0); };
  const shown = timelines.filter(one => !one.root.hidden && seen(one) > 0).sort((a, b) => seen(b) - seen(a));
  if (shown.length) shown[0].key(event);
});
document.addEventListener("click", event => {
  const link = event.target.closest("a.to-rule"), dialog = document.getElementById("rule");
  if (event.target === dialog) dialog.close();
  const article = link && document.getElementById(link.getAttribute("href").slice(1));
  if (!article) return;
  event.preventDefault();
  dialog.querySelector("div").innerHTML = `<p class="section">${escape(article.dataset.section)}</p>${article.innerHTML}`;
  if (!dialog.open) dialog.showModal();
});
