/* Who was grouped with whom: the run, the round, the order; matrix, weights and flow follow. */
(function (Cadis) {
  "use strict";

  const make = Cadis.make;
  let part, select, slider, round, order, state, matrix, weights, flow, matrixFigure, flowFigure, play, aside;
  let atEnd = true; // a running experiment goes on: so does the slider, if it was at the end
  let timer = null;
  let waiting = false;
  let drawn = null; // names along the matrix as they are drawn

  const started = (run) => run.rounds.length > 0;
  const chosen = () => part.runs.find((run) => `${run.method}/${run.seed}` === select.list.value) || part.runs[0];

  /** What is looked at: run, frame, order of the clients, and the clusters in that order. */
  function view() {
    const run = chosen();
    const frame = Math.min(Number(slider.value), run.rounds.length - 1);
    const found = run.found[frame];
    const cluster = order.chosen() === "true" && run.true ? run.true : found;
    const rank = (client) => (cluster[client] < 0 ? Infinity : cluster[client]); // not seen yet: last
    const clients = run.clients.map((_, client) => client);
    const sorted = clients.sort((a, b) => (rank(a) === rank(b) ? a - b : rank(a) - rank(b)));
    return { run, frame, order: sorted, blocks: Cadis.blocks(sorted, cluster).filter((block) => block.cluster >= 0) };
  }

  function sentence({ run, frame }) {
    const found = run.found[frame].filter((cluster) => cluster >= 0);
    const measure = run.agreement && Cadis.number(run.agreement[frame], 2);
    const agreement = measure ? `, agreement with the true clusters ${measure}` : "";
    const seen = Cadis.plural(found.length, "client");
    const clusters = `${Cadis.plural(new Set(found).size, "cluster")} among ${seen} seen`;
    const threshold = run.threshold[frame];
    const applied = threshold == null ? "" : `threshold ${Cadis.number(threshold, 2)}, `;
    const sure = run.confidence[frame];
    const confidence = sure == null ? "" : `, confidence ${Cadis.number(sure, 2)}`;
    return `Round ${run.rounds[frame]}: ${applied}${clusters}${agreement}${confidence}.`;
  }

  /** Participants that are not among the clients shown have no bar, but are told of. */
  function unseen({ run, frame }) {
    const { count, weight } = run.others[frame];
    if (!count) return "";
    const who = `${Cadis.plural(count, "participant")} of this round`;
    return `Not among the clients shown: ${who}, weight ${Cadis.number(weight)} in all.`;
  }

  const beside = () => matrixFigure.clientWidth >= 820; // as in the style sheet

  /** Matrix and weights only: this is what the slider moves. */
  function show() {
    const now = view();
    const text = sentence(now);
    const at = now.run.rounds[now.frame];
    round.textContent = `${at} of ${now.run.rounds[now.run.rounds.length - 1]}`;
    slider.setAttribute("aria-valuetext", `round ${at}`);
    if (state.textContent !== text) state.textContent = text;
    aside.textContent = unseen(now);
    weights.style.height = beside() ? "" : `${64 + 26 * Math.max(2, Cadis.weightsRows(now))}px`;
    const { count, clusters } = now.run.others[now.frame];
    const weighed = Cadis.plural(now.run.weights[now.frame].length + count, "participant");
    const who = `${weighed} in ${Cadis.plural(clusters, "cluster")}`;
    const names = now.order.map((client) => now.run.clients[client]).join();
    const some = names === drawn ? () => ({ series: Cadis.matrixSeries(now) }) : null;
    drawn = names;
    Cadis.refresh(matrix, `Similarities of ${now.order.length} clients. ${text}`, some);
    Cadis.refresh(weights, `Weights of ${who} in round ${at}.`);
  }

  function soon() {
    atEnd = Number(slider.value) === Number(slider.max);
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      show();
    });
  }

  function step(by) {
    const to = Math.max(0, Math.min(Number(slider.max), Number(slider.value) + by));
    if (to === Number(slider.value)) return stop();
    slider.value = to;
    return soon();
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }

  function toggle() {
    if (timer) return stop();
    if (slider.value === slider.max) slider.value = 0;
    play.textContent = "Pause";
    timer = setInterval(() => step(1), 200);
    return soon();
  }

  function caption(run) {
    const strip = run.true ? "; strip at the left edge: true clusters" : "";
    const measure = run.agreement ? " Agreement: adjusted Rand index, 1 is perfect, 0 is chance." : "";
    const told = run.confidence.some((sure) => sure != null);
    const sure = told ? " Confidence: how sure the method is that there are clusters at all, from 0 to 1." : "";
    const together = run.measured ? "" : ", the part of their common rounds in one cluster";
    const q = `${run.measured ? "similarity " : ""}q of each pair of clients${together}`;
    const shown = run.clients.length;
    const among = run.sampled ? " Clusters, agreement and the scale of q are those among them." : "";
    const some = run.of > shown ? ` ${shown} of the federation's ${run.of} clients are shown.${among}` : "";
    return (
      `First: ${q}; frames: the clusters of the chosen order${strip}. ` +
      "Second: the share of each participant in the new global model; colours: clusters among the round's " +
      `participants.${measure}${sure}${some}`
    );
  }

  /** Another run, or new rounds of the same. */
  function adopt() {
    const run = chosen();
    slider.max = Math.max(0, run.rounds.length - 1);
    if (atEnd) slider.value = slider.max;
    const known = Boolean(run.true);
    order.querySelector("#order-true").disabled = !known;
    if (!known) order.querySelector("#order-found").checked = true;
    matrixFigure.caption.textContent = caption(run);
    show();
    Cadis.showFlow(flow, flowFigure, run);
  }

  function scale() {
    const stops = [0, 0.25, 0.5, 0.75, 1].map((share) => `rgb(${Cadis.viridis[Math.round(share * 254)].join(",")})`);
    const ramp = make("span", { class: "ramp" });
    ramp.style.background = `linear-gradient(to right, ${stops.join(",")})`;
    return make(
      "p",
      { class: "scale" },
      "q: 0 ",
      ramp,
      " 1 ",
      make("span", {}, make("span", { class: "ramp unknown" }), " unknown (never met)"),
    );
  }

  function ranger() {
    const oninput = () => {
      stop();
      soon();
    };
    const button = (text, label, onclick) => make("button", { type: "button", "aria-label": label, onclick }, text);
    slider = make("input", { type: "range", id: "round", min: 0, max: 0, step: 1, value: 0, oninput });
    round = make("output", { for: "round" });
    play = make("button", { type: "button", onclick: toggle }, "Play");
    const back = button("‹", "Previous round", () => step(-1));
    const forth = button("›", "Next round", () => step(1));
    const label = make("label", { for: "round" }, "Round ");
    return make("div", { class: "control rounds" }, label, back, slider, forth, play, round);
  }

  function controls() {
    const orders = [
      ["order-true", "true", "true cluster"],
      ["order-found", "found", "found cluster"],
    ];
    select = Cadis.select("run", "Run", () => adopt());
    order = Cadis.radios("order", "Order by", orders, show);
    return make("div", { class: "controls" }, select, order, ranger());
  }

  function build(root) {
    const panel = controls();
    state = make("p", { class: "state", "aria-live": "polite" });
    aside = make("p", { class: "quiet" });
    matrix = Cadis.chart(
      "chart-matrix",
      (width) => Cadis.matrixOption(view(), width),
      (chart) => Cadis.watchMatrix(chart, view),
    );
    weights = Cadis.chart("chart-weights", () => Cadis.weightsOption(view(), beside()));
    matrixFigure = Cadis.figure("", scale(), make("div", { class: "pair" }, matrix, weights), aside);
    flow = Cadis.chart("chart-flow", (width) => Cadis.flowOption(chosen(), width));
    flowFigure = Cadis.figure("", flow);
    root.append(panel, state, matrixFigure, make("h3", {}, "How the clusters formed"), flowFigure);
  }

  function update(data) {
    part = { runs: data.runs.filter(started) };
    select.set(
      part.runs.map((run) => [
        `${run.method}/${run.seed}`,
        `${Cadis.clip(Cadis.method(run.method).name, 32)}, seed ${run.seed}`,
      ]),
    );
    adopt();
  }

  Cadis.section({
    id: "grouping",
    name: "Grouping",
    title: "Who was grouped with whom",
    build,
    update,
    empty: (data) => !data.runs.some(started),
    lead:
      "Bright blocks along the diagonal are clients that are alike. Move the slider to watch them form. " +
      "For CADIS every cluster has an equal voice, so clients of small clusters weigh more.",
  });
})(window.Cadis);
