"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const COLOURS = 7;
  const STEPS = 200; // positions of the epsilon slider
  const DASHES = [[], [9, 4], [3, 3], [12, 3, 3, 3]];
  const sheet = new Image();
  const charts = {};

  // ---- small helpers -----------------------------------------------------------------------
  const at = (id) => document.getElementById(id);
  const say = (id, text) => { at(id).textContent = text; };

  /** An element with attributes and children; strings become text, never markup. */
  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    element.append(...children.filter((child) => child !== null));
    return element;
  }

  const number = (x) => x.toLocaleString("en");
  /** Whole percents: none and all are said only where it is so. */
  function percent(x) {
    if (x > 0 && x < 0.005) return "under 1 %";
    if (x < 1 && x >= 0.995) return "over 99 %";
    return `${Math.round(100 * x)} %`;
  }
  const cost = (share) => `${share < 0.1 ? Number((100 * share).toPrecision(1)) : Math.round(100 * share)} %`;
  const precise = (x) => String(Number(x.toPrecision(6)));
  /** A chosen epsilon is short, so that what is said of it is said of the number that is shown. */
  const short = (x) => Number(x.toPrecision(x < 10 ? 2 : 3));
  function shortAbove(x) {
    if (short(x) >= x) return short(x);
    const digits = (x < 10 ? 1 : 2) - Math.floor(Math.log10(x));
    return Number(((Math.floor(x * 10 ** digits) + 1) / 10 ** digits).toPrecision(6));
  }
  const ofTen = (x) => `${(data.found * x).toFixed(1)} of ${data.found}`;
  const clamp = (x, low, high) => Math.min(high, Math.max(low, x));

  /** The most that an attacker can be sure of, from 50:50: rounded up, as it is a bound. */
  function certainty(epsilon) {
    const doubt = 1 / (1 + Math.exp(epsilon));
    if (doubt < 1e-5) return "100 %";
    const digits = doubt > 0.01 ? 1 : Math.ceil(-Math.log10(doubt)) - 1;
    const scale = 10 ** digits;
    return `${(Math.ceil(100 * (1 - doubt) * scale - 1e-9) / scale).toFixed(digits)} %`;
  }

  // ---- state -------------------------------------------------------------------------------
  const state = { view: data.opens, mode: null, epsilon: 1, off: new Set(), focus: null, query: 0, level: 0 };
  const view = () => data.views[state.view];
  const methods = () => view().methods;
  const isBaseline = (method) => method.epsilons[0] === null;
  /** What may be chosen to protect a vector: not what has no noise, if there is anything else. */
  function protections() {
    const noisy = methods().filter((method) => !isBaseline(method));
    return noisy.length ? noisy : methods();
  }
  const key = (method) => `${view().adjacency.kind} ${method.label}`;
  const drawn = () => methods().filter((method) => !state.off.has(key(method)));
  const focus = () => methods().find((method) => method.label === state.focus);
  const dragged = () => view().epsilons.length > 1;
  const range = () => [view().epsilons[0], view().epsilons[view().epsilons.length - 1]];

  /** A measure between two measured epsilons, on the logarithmic axis; null outside. */
  function between(method, values, epsilon) {
    if (isBaseline(method)) return values[0];
    const known = method.epsilons;
    for (let i = 0; i < known.length; i += 1) {
      if (Math.abs(known[i] - epsilon) < 1e-9 * epsilon) return values[i];
      if (i + 1 < known.length && known[i] < epsilon && epsilon < known[i + 1]) {
        const share = Math.log(epsilon / known[i]) / Math.log(known[i + 1] / known[i]);
        if (values[i] === null || values[i + 1] === null) return null;
        return values[i] + share * (values[i + 1] - values[i]);
      }
    }
    return null;
  }

  /** The smallest epsilon at which a method finds that share; null if it never does. */
  function solve(method, wanted) {
    const values = foundOf(method);
    const known = method.epsilons;
    for (let i = 0; i < known.length; i += 1) {
      if (values[i] >= wanted) {
        if (i === 0) return known[0];
        const share = (wanted - values[i - 1]) / (values[i] - values[i - 1]);
        const solved = known[i - 1] * (known[i] / known[i - 1]) ** share;
        return Math.min(shortAbove(solved), known[i]); // where it finds no less
      }
    }
    return null;
  }

  /** The number of the measured epsilon nearest to the chosen one. */
  function nearest(method) {
    if (isBaseline(method)) return 0;
    const distance = method.epsilons.map((e) => Math.abs(Math.log(e / state.epsilon)));
    return distance.indexOf(Math.min(...distance));
  }

  function fromPosition(position) {
    const [low, high] = range();
    const epsilon = low * (high / low) ** (position / STEPS);
    const step = Math.log(high / low) / STEPS;
    const near = view().epsilons.find((e) => Math.abs(Math.log(e / epsilon)) <= step / 2);
    return near === undefined ? clamp(short(epsilon), low, high) : near;
  }

  function toPosition(epsilon) {
    if (!dragged()) return 0;
    const [low, high] = range();
    return Math.round((STEPS * Math.log(epsilon / low)) / Math.log(high / low));
  }

  // ---- the two questions -------------------------------------------------------------------
  const VIEWS = {
    attribute: ["One attribute of a vector", "A single number in it: a pixel, a click, an answer."],
    l2: ["Small differences between vectors", "Small changes of every number, but no large ones."],
    record: ["The whole record", "Whose vector it is, and everything in it."],
  };
  const MODES = {
    private: ["Nobody: the query is privatized too", "The server that searches sees only a noisy code of the query."],
    exact: ["Only you, who run the search yourself", "The query has no noise, so a search finds more. Keep it on your own machine."],
  };

  function choice(group, value, title, text, chosen, changed) {
    const input = make("input", { type: "radio", name: group, value });
    input.checked = chosen;
    input.addEventListener("change", () => changed(value));
    return make("label", { class: "choice" }, input, make("span", {}, title, make("small", {}, text)));
  }

  function drawQuestions() {
    at("views").replaceChildren(at("views").firstElementChild, ...data.views.map((each, i) => {
      const { kind, words } = each.adjacency;
      const [title, plain] = VIEWS[kind];
      const text = `${plain} Exactly: ${words}.`;
      return choice("view", i, title, text, i === state.view, chooseView);
    }));
    at("modes").replaceChildren(at("modes").firstElementChild, ...view().modes.map((mode) => {
      const [title, text] = MODES[mode];
      return choice("mode", mode, title, text, mode === state.mode, chooseMode);
    }));
  }

  function chooseView(i) {
    state.view = Number(i);
    const [low, high] = range();
    state.epsilon = clamp(state.epsilon, low, high);
    if (!view().modes.includes(state.mode)) [state.mode] = view().modes;
    state.level = usualLevel();
    state.focus = bestMethod().label;
    drawView();
  }

  function chooseMode(mode) {
    state.mode = mode;
    drawCharts();
    drawTable();
    update();
  }

  /** The DP method that finds most at the largest epsilon. */
  function bestMethod() {
    const last = (method) => foundOf(method)[method.epsilons.length - 1] || 0;
    const rank = (method) => (method.definition === "DP" ? 2 : 0) + last(method);
    return [...protections()].sort((a, b) => rank(b) - rank(a))[0];
  }

  // ---- methods -----------------------------------------------------------------------------
  const colourName = (method) => {
    if (isBaseline(method)) return "--none";
    const names = [...new Set(methods().filter((m) => !isBaseline(m)).map((m) => m.method))];
    return `--c${names.indexOf(method.method) % COLOURS}`;
  };
  const dash = (method) => {
    if (isBaseline(method)) return [2, 5];
    const private_ = methods().filter((m) => !isBaseline(m));
    return DASHES[private_.indexOf(method) % DASHES.length];
  };
  const colour = (method) => getComputedStyle(document.documentElement)
    .getPropertyValue(colourName(method)).trim();

  const named = (method) => method.label
    + (isBaseline(method) ? " (dotted: no noise, the limit of this projection)" : "");

  function drawMethods() {
    const boxes = methods().map((method) => {
      const input = make("input", { type: "checkbox" });
      input.checked = !state.off.has(key(method));
      input.addEventListener("change", () => {
        if (input.checked) state.off.delete(key(method)); else state.off.add(key(method));
        drawCharts();
        update();
      });
      const line = make("span", { class: "key", "aria-hidden": "true" });
      line.style.borderTopColor = colour(method);
      line.style.borderTopStyle = dash(method).length ? "dashed" : "solid";
      const about = `${method.summary}. ${method.promise} A code takes ${number(method.bytes)} bytes.`;
      return make("div", { class: "method" },
        make("label", { class: "choice" }, input, make("span", {}, line, named(method))),
        make("p", { class: "now" }), make("p", { class: "muted" }, about));
    });
    at("methods").replaceChildren(...boxes);
    at("focus").replaceChildren(...protections().map((method) => {
      const option = make("option", { value: method.label }, method.label);
      option.selected = method.label === state.focus;
      return option;
    }));
  }

  // ---- charts ------------------------------------------------------------------------------
  function drawChart(id, values) {
    const place = at(id);
    if (charts[id]) charts[id].destroy();
    const lines = drawn().filter((method) => values(method).some((value) => value !== null));
    const x = view().epsilons;
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--soft").trim();
    const grid = { stroke: style.getPropertyValue("--grid").trim(), width: 1 };
    const font = "13px system-ui, sans-serif";
    const [low, high] = range();
    const at_ = (method, epsilon) => {
      const i = isBaseline(method) ? 0 : method.epsilons.indexOf(epsilon);
      return i < 0 ? null : values(method)[i];
    };
    const options = {
      width: place.clientWidth,
      height: 300,
      legend: { show: false },
      cursor: { drag: { setScale: false }, points: { show: false }, y: false },
      padding: [12, 16, 0, 0],
      scales: {
        x: { time: false, distr: 3, range: () => [low / 1.12, high * 1.12] },
        y: { range: () => [0, 1.03] },
      },
      axes: [
        { stroke: ink, grid, ticks: grid, font, label: "ε (logarithmic: more private on the left)",
          labelFont: font, labelSize: 22, splits: () => x, filter: (u, splits) => splits,
          values: (u, splits) => splits.map(precise) },
        { stroke: ink, grid, ticks: grid, font, size: 58, splits: () => [0, 0.2, 0.4, 0.6, 0.8, 1],
          values: (u, splits) => splits.map(percent) },
      ],
      series: [{}, ...lines.map((method) => ({
        label: method.label,
        stroke: colour(method),
        width: isBaseline(method) ? 1.5 : 2.25,
        dash: dash(method),
        spanGaps: true,
        points: { show: !isBaseline(method), size: 6, fill: colour(method) },
      }))],
      hooks: { draw: [(u) => mark(u, lines, values)] },
    };
    charts[id] = new uPlot(options, [x, ...lines.map((m) => x.map((e) => at_(m, e)))], place);
    charts[id].over.addEventListener("click", (event) => {
      const left = event.clientX - charts[id].over.getBoundingClientRect().left;
      moveTo(clamp(charts[id].posToVal(left, "x"), low, high));
    });
  }

  /** The chosen epsilon as an upright line, and a dot on every curve. */
  function mark(u, lines, values) {
    const { ctx, bbox } = u;
    const x = u.valToPos(state.epsilon, "x", true);
    ctx.save();
    ctx.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();
    ctx.lineWidth = 1.5 * uPlot.pxRatio;
    ctx.setLineDash([]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    for (const method of lines) {
      const value = between(method, values(method), state.epsilon);
      if (value === null) continue;
      ctx.fillStyle = colour(method);
      ctx.beginPath();
      ctx.arc(x, u.valToPos(value, "y", true), 5.5 * uPlot.pxRatio, 0, 2 * Math.PI);
      ctx.fill();
      ctx.stroke();
    }
    ctx.restore();
  }

  // The first level is as many candidates as answers, which is a search by codes alone.
  const reranked = () => state.level > 0;
  /** Codes of whole records are made for candidates: 5 % of all, as far as these were measured. */
  function usualLevel() {
    if (view().adjacency.kind !== "record") return 0;
    const few = data.candidates.filter((count) => count <= 0.05 * data.base.count);
    return Math.max(0, few.length - 1);
  }
  const candidates = () => data.candidates[state.level];
  const foundOf = (method) => method.within[state.mode][state.level];
  const exposedOf = (method) => method.exposed;
  const linkedOf = (method) => method.linked;
  /** The charts, and what each shows of a method; recognition is not part of every evaluation. */
  function shownCharts() {
    const shown = { found: foundOf, exposed: exposedOf };
    if (methods().some((method) => method.linked.some((value) => value !== null))) {
      shown.linked = linkedOf;
    }
    return shown;
  }

  function drawCharts() {
    const shown = shownCharts();
    at("linked-figure").hidden = !shown.linked;
    for (const [id, values] of Object.entries(shown)) drawChart(id, values);
  }

  /** What one measure is at the chosen epsilon, in words for each method that has a figure. */
  function listed(values, form) {
    return drawn()
      .map((method) => [method, between(method, values(method), state.epsilon)])
      .filter(([, value]) => value !== null)
      .map(([method, value]) => `${method.label}: ${form(value)}`)
      .join("; ") || "nothing is drawn";
  }

  function describeCharts() {
    const epsilon = precise(state.epsilon);
    const query = state.mode === "private" ? "a private query" : "an exact query";
    say("found-said", `How many of the ten nearest vectors ${query} finds`
      + (reranked() ? `, when the data holder re-ranks the first ${number(candidates())} answers `
        + "exactly. " : ". ")
      + "10 of 10 would be a search without any loss.");
    say("exposed-said", "How much an attacker who learns from all codes recovers. "
      + "0 % is a guess without the code, 100 % is the exact vector.");
    say("linked-said", "How many records an attacker who already knows them identifies among all "
      + `${number(data.base.count)} codes. 0 % is a random guess, 100 % is everybody.`);
    for (const [id, values] of Object.entries(shownCharts())) {
      at(id).setAttribute("role", "img");
      at(id).setAttribute("aria-label", `Line chart by epsilon: ${at(`${id}-title`).textContent}. `
        + `The numbers are in the table below. At ε = ${epsilon}: `
        + `${listed(values, id === "found" ? ofTen : percent)}.`);
      charts[id].redraw(false);
    }
    say("now", `At ε = ${epsilon}, with ${query}:`);
    document.querySelectorAll("#methods .now").forEach((place, i) => {
      const method = methods()[i];
      const found = between(method, foundOf(method), state.epsilon);
      const exposed = between(method, exposedOf(method), state.epsilon);
      const linked = between(method, linkedOf(method), state.epsilon);
      place.textContent = (found === null ? "not measured here" : `finds ${ofTen(found)}`)
        + (exposed === null ? "" : `, reveals ${percent(exposed)}`)
        + (linked === null ? "" : `; ${percent(linked)} of known records are identified`);
    });
  }

  function drawTable() {
    const head = (text) => make("th", { scope: "col" }, text);
    const table = (caption, values, spread) => make("table", {},
      make("caption", {}, caption),
      make("thead", {}, make("tr", {}, head("method"),
        ...view().epsilons.map((e) => head(`ε = ${precise(e)}`)))),
      make("tbody", {}, ...methods().map((method) => make("tr", {},
        make("th", { scope: "row" }, method.label),
        ...view().epsilons.map((epsilon) => {
          const i = isBaseline(method) ? 0 : method.epsilons.indexOf(epsilon);
          const value = i < 0 ? null : values(method)[i];
          if (value === null) return make("td", {}, "–");
          const around = spread && spread(method)[i];
          return make("td", {}, (100 * value).toFixed(1)
            + (around ? ` ± ${(100 * around).toFixed(1)}` : "") + " %");
        })))));
    const spread = view().runs > 1 && !reranked() ? (method) => method.spread[state.mode] : null;
    at("table").replaceChildren(
      table(`Found with ${state.mode} queries: share of the ten true neighbours`
        + (reranked() ? ` among ${number(candidates())} candidates` : "")
        + (spread ? `, ± one standard deviation over ${view().runs} runs` : ""), foundOf, spread),
      table("Revealed: how much of a vector an attacker reconstructs", exposedOf, null),
      ...(shownCharts().linked
        ? [table("Revealed: records that someone who knows them identifies", linkedOf, null)] : []));
  }

  // ---- odds --------------------------------------------------------------------------------
  function describeOdds() {
    const epsilon = state.epsilon;
    const sure = certainty(epsilon);
    const odds = Math.exp(epsilon);
    const subject = {
      attribute: "knows a whole vector except one attribute, and thinks two values of it equally likely",
      l2: "thinks two similar vectors equally likely to be behind a code",
      record: "thinks it equally likely that a code is of your vector or of anybody else's",
    }[view().adjacency.kind];
    const digit = 10 ** (Math.floor(Math.log10(odds)) - 2); // three digits, rounded up
    const shown = odds < 1e6 ? number(Number((Math.ceil(odds / digit) * digit).toPrecision(3)))
      : "over a million";
    const verdict = epsilon <= 0.5 ? " That is hardly better than a coin toss."
      : epsilon >= 8 ? " That is close to certainty: at this ε the promise alone protects little."
        : "";
    say("odds-number", `≤ ${sure}`);
    say("odds", `Suppose an attacker ${subject}. Whatever else they know or do, the published `
      + `code can make them at most ${sure} sure: odds of ${shown} to 1.${verdict}`);
    const share = 1 / (1 + Math.exp(-epsilon));
    at("odds-bar").style.width = `${200 * (share - 0.5)}%`;
    const total = epsilon * data.base.dim;
    const unit = 10 ** (Math.floor(Math.log10(total)) - 2); // three digits, rounded up
    const all = Number((Math.ceil(total / unit - 1e-9) * unit).toPrecision(3));
    const whole = data.views.findIndex((each) => each.adjacency.kind === "record");
    const record = whole < 0 ? "" : " If that must stay hidden, choose “the whole record” above.";
    say("odds-more", view().adjacency.kind === "attribute"
      ? `This is about one attribute, when the others are known. An attacker who knows none of them `
        + `learns far more, because attributes are correlated: for all ${number(data.base.dim)} `
        + `at once the same codes promise only `
        + `ε = ${precise(epsilon)} × ${number(data.base.dim)} = ${number(all)}, `
        + `which is up to ${certainty(all)} sure.${record}`
      : "This is about one release. If the same vector is published again, the two ε add up.");
  }

  // ---- examples ----------------------------------------------------------------------------
  function tile(place, label, kind = "tile") {
    const { width, height, columns } = data.sheet;
    const canvas = make("canvas", { class: kind === "tile" ? kind : `tile ${kind}`, width, height,
      role: "img", "aria-label": label });
    const [left, top] = [(place % columns) * width, Math.floor(place / columns) * height];
    if (sheet.naturalWidth > 0) { // else this browser does not know the format
      canvas.getContext("2d").drawImage(sheet, left, top, width, height, 0, 0, width, height);
    }
    return canvas;
  }

  const hidden = (text) => make("span", { class: "vh" }, text);

  function item(coded, judged) {
    const hit = coded >= 0;
    const i = hit ? coded : -1 - coded;
    const name = data.items.names[i];
    const verdict = hit ? "a true neighbour" : "not a true neighbour";
    const kind = judged ? (hit ? "hit" : "miss") : "";
    if (data.kind === "picture") {
      return make("li", { class: kind },
        tile(data.items.tiles[i], judged ? `${name}, ${verdict}` : name),
        judged ? make("span", { class: "mark", "aria-hidden": "true" }, hit ? "✓" : "\u00a0") : null);
    }
    const mark = make("span", { class: "mark", "aria-hidden": "true" }, hit ? "✓ " : "· ");
    return make("li", { class: kind }, judged ? mark : null, name,
      judged ? hidden(`, ${verdict}`) : null);
  }

  const list = (codes, judged) => make("ol", { class: `items ${data.kind}` },
    ...codes.map((code) => item(code, judged)));

  function example(query, answer, truth) {
    const name = data.queries.shown[query];
    const hits = answer.filter((code) => code >= 0).length;
    const head = make("div", {}, make("h4", {}, data.kind === "text" ? `Query: “${name}”` : name));
    if (data.queries.tile !== null) {
      head.append(tile(data.queries.tile + query, `The query, ${name}`, "asked"));
    }
    return make("div", { class: "example" }, head,
      make("div", { class: data.kind === "text" ? "rows texts" : "rows" },
        make("div", {}, make("h5", {}, "The ten true neighbours, nearest first"), list(truth, false)),
        make("div", {}, make("h5", {}, `Found: ${hits} of these ten`), list(answer, true))));
  }

  let shownHits = "";
  function drawHits() {
    const method = focus();
    const i = nearest(method);
    const signature = [state.view, state.mode, method.label, i, state.query, state.level].join("|");
    if (signature === shownHits) return;
    shownHits = signature;
    const answers = method.hits[state.mode][i][state.level];
    const several = data.kind !== "text";
    const queries = several ? answers.map((_, query) => query) : [state.query];
    at("query-chooser").hidden = several;
    at("hits").replaceChildren(...queries.map((query) =>
      example(query, answers[query], view().truth[query])));
  }

  let shownRebuilt = "";
  function drawRebuilt() {
    const method = focus();
    const i = nearest(method);
    const signature = [state.view, method.label, i].join("|");
    if (signature === shownRebuilt) return;
    shownRebuilt = signature;
    const rebuilt = method.rebuilt[i];
    if (rebuilt === null) {
      say("rebuilt-said", "The projection of this method is too large to be inverted here.");
      at("rebuilt").replaceChildren();
      return;
    }
    const measured = method.epsilons[i];
    const linked = between(method, linkedOf(method), measured === null ? state.epsilon : measured);
    const right = rebuilt.nearest.filter((row, r) => row === data.records[r]).length;
    const count = data.records.length;
    const pictures = data.kind === "picture";
    const unit = view().adjacency.kind === "record"
      ? " Codes of whole records keep no brightness, so all are shown as bright as the originals." : "";
    say("rebuilt-said", "The attacker holds the codes of the whole collection, learns from them how "
      + "vectors usually look, and inverts the code. "
      + (pictures ? `On the left the original, on the right the reconstruction.${unit}`
        : "The stripes are attributes of a vector, from its smallest value (black) to its largest "
          + "(white): the original above, the reconstruction below.")
      + ` An attacker who also has a list of all ${number(data.base.count)} originals and picks the `
      + `one most like it finds the right one for ${right} of these ${count}.`
      + (linked === null ? "" : " An attacker who compares the originals with the code itself identifies more: "
        + `${percent(linked)} of known records.`)
      + " The cosine is 1 for the same direction, and 0 for unrelated vectors.");
    at("rebuilt").replaceChildren(make("ul", {
      class: `pairs ${pictures ? "" : "strips"} ${data.kind}`,
    }, ...data.records.map((record, r) => {
      const name = data.items.names[record];
      const cosine = rebuilt.cosine[r].toFixed(2);
      const picked = rebuilt.nearest[r];
      const guess = picked === null ? "nothing to compare"
        : picked === record ? "the attacker would pick the right one"
          : data.kind === "text" ? `the attacker would pick “${data.items.names[picked]}”`
            : "the attacker would pick another one";
      return make("li", {},
        make("div", { class: "pair" },
          make("div", {}, tile(data.items.tiles[record], `The original, ${name}`),
            make("span", {}, "original")),
          make("div", {}, tile(rebuilt.tile + r, `Reconstructed from the code of ${name}, cosine ${cosine}`),
            make("span", {}, "reconstructed"))),
        data.kind === "picture" ? null : make("p", {}, data.kind === "text" ? `Record: “${name}”` : name),
        make("p", {}, `Cosine ${cosine}: ${guess}.`));
    })));
  }

  function describeExamples() {
    const method = focus();
    const measured = method.epsilons[nearest(method)];
    const average = between(method, foundOf(method), state.epsilon);
    const same = measured === null || Math.abs(measured - state.epsilon) < 1e-9;
    say("measured", measured === null
      ? `${method.label} has no noise and no ε: these are the examples without any privacy.`
      : `The examples are of codes made at ε = ${precise(measured)}`
        + (same ? "." : `, the measured value nearest to your ε = ${precise(state.epsilon)}.`));
    const query = state.mode === "private" ? "private queries" : "exact queries";
    say("hits-said", (average === null ? "" : `Over all ${number(data.queries.count)} ${query} the `
      + `average is ${ofTen(average)}`
      + (reranked() ? ` among ${number(candidates())} candidates. ` : ". "))
      + `These are ${data.queries.shown.length} of the queries. A ✓ marks an answer that is one of `
      + "the ten true neighbours; other answers may still be similar.");
  }

  // ---- sliders -----------------------------------------------------------------------------
  function showCandidates() {
    if (!at("controls")) return;
    const slider = at("candidates");
    const share = candidates() / data.base.count;
    slider.value = state.level;
    slider.setAttribute("aria-valuetext", `${number(candidates())} candidates`);
    say("candidates-value", `R = ${number(candidates())}`);
    say("candidates-said", reranked()
      ? `${number(candidates())} of ${number(data.base.count)}: ${cost(share)} of the vectors are `
        + "re-ranked exactly by the data holder."
      : "As many as answers: the codes alone decide.");
  }

  function showEpsilon() {
    if (!at("controls")) return;
    at("controls").hidden = !dragged();
    const slider = at("epsilon");
    slider.value = toPosition(state.epsilon);
    const text = precise(state.epsilon);
    slider.setAttribute("aria-valuetext", `epsilon ${text}, at most ${certainty(state.epsilon)} sure`);
    say("epsilon-value", `ε = ${text}`);
  }

  function showRecall(wanted) {
    if (!at("controls")) return;
    const method = focus();
    const slider = at("recall");
    const now = between(method, foundOf(method), state.epsilon);
    if (wanted === undefined) slider.value = Math.round(100 * (now || 0));
    const goal = Number(slider.value) / 100;
    const text = ofTen(goal);
    slider.setAttribute("aria-valuetext", `${text} true neighbours`);
    say("recall-value", text);
    const most = Math.max(...foundOf(method));
    const reached = wanted === undefined || goal <= most;
    say("recall-said", reached
      ? `${method.label}, which is chosen below, needs ε = ${precise(state.epsilon)} for it.`
      : `${method.label} finds at most ${ofTen(most)} up to ε = ${precise(range()[1])}.`);
  }

  function moveTo(epsilon, wanted) {
    state.epsilon = epsilon;
    update(wanted);
  }

  function update(wanted) {
    showEpsilon();
    showCandidates();
    showRecall(wanted);
    describeOdds();
    describeCharts();
    if (data.kind === null) return;
    describeExamples();
    drawHits();
    drawRebuilt();
  }

  function drawView() {
    drawQuestions();
    drawMethods();
    drawCharts();
    drawTable();
    update();
  }

  // ---- start -------------------------------------------------------------------------------
  function listenToSliders() {
    at("epsilon").max = STEPS;
    at("epsilon").addEventListener("input", (event) => {
      const position = Number(event.target.value);
      moveTo(fromPosition(position));
      event.target.value = position; // several positions may have one short epsilon
    });
    at("recall").addEventListener("input", (event) => {
      const wanted = Number(event.target.value) / 100;
      const solved = solve(focus(), wanted);
      moveTo(solved === null ? range()[1] : solved, wanted);
    });
    at("candidates").max = data.candidates.length - 1;
    at("candidates").addEventListener("input", (event) => {
      state.level = Number(event.target.value);
      drawCharts();
      drawTable();
      update();
    });
  }

  function start() {
    const { base } = data;
    say("intro", `${number(base.count)} vectors of ${number(base.dim)} numbers each (${base.name}) `
      + "were turned into codes with secret noise in them, which anyone may hold and search. One "
      + "number, ε (epsilon), sets the amount of noise. Less noise finds more of the true "
      + `neighbours of a query, and reveals more.${dragged() ? " Drag ε and see both." : ""}`);
    say("footer", `Made with dpindex ${data.version}. Charts by uPlot (MIT licence, in the source of `
      + "this page). The page loads nothing and sends nothing.");
    [state.mode] = view().modes;
    state.level = usualLevel();
    const [low, high] = range();
    const { epsilons } = view();
    state.epsilon = epsilons[Math.floor(epsilons.length / 2)] || Math.sqrt(low * high);
    state.focus = bestMethod().label;
    if (at("controls")) listenToSliders();
    at("focus").addEventListener("change", (event) => { state.focus = event.target.value; update(); });
    at("look").hidden = data.kind === null;
    if (data.kind !== null) {
      at("query").append(...data.queries.shown.map((name, i) => make("option", { value: i }, name)));
    }
    at("query").addEventListener("change", (event) => { state.query = Number(event.target.value); update(); });
    drawView();
    new ResizeObserver(() => {
      for (const [id, chart] of Object.entries(charts)) {
        const width = at(id).clientWidth;
        if (width !== chart.width) chart.setSize({ width, height: 300 });
      }
    }).observe(document.querySelector(".charts"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      drawMethods();
      drawCharts();
      update();
    });
  }

  if (data.kind === null) {
    start();
  } else {
    sheet.src = data.sheet.src;
    sheet.decode().then(start, start);
  }
})();
