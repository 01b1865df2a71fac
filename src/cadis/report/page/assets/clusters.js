/* Clusters of clients: controls for run, round and order; similarity matrix, weights and flow. */
(function (Cadis) {
  "use strict";

  const make = Cadis.make;
  let sectionData, select, slider, round, play, order, state;
  let matrix, weights, matrixFigure, othersNote, flow, flowFigure;
  let atEnd = true; // while a run is watched, the slider follows the last round
  let timer = null;
  let waiting = false;
  let drawnNames = null; // along the axes of the matrix

  const started = (run) => run.rounds.length > 0;
  const key = (run) => `${run.method}/${run.seed}`;
  const selected = () => sectionData.runs.find((run) => key(run) === select.list.value) || sectionData.runs[0];

  /**
   * Return what is shown: the run, the frame (index of the round that the slider selects), the client indices in the
   * order of the matrix, and the blocks of clients that are outlined.
   */
  function view() {
    const run = selected();
    const frame = Math.min(Number(slider.value), run.rounds.length - 1);
    const found = run.found[frame];
    const cluster = order.chosen() === "true" && run.true ? run.true : found;
    // clients that have not taken part come last
    const rank = (client) => (cluster[client] < 0 ? Infinity : cluster[client]);
    const clients = run.clients.map((_, client) => client);
    const sorted = clients.sort((a, b) => (rank(a) === rank(b) ? a - b : rank(a) - rank(b)));
    return { run, frame, order: sorted, blocks: Cadis.blocks(sorted, cluster).filter((block) => block.cluster >= 0) };
  }

  function describeRound({ run, frame }) {
    const found = run.found[frame].filter((cluster) => cluster >= 0);
    const index = run.agreement && Cadis.number(run.agreement[frame], 2);
    const agreement = index ? `; agreement with the true clusters: ${index}` : "";
    const clients = Cadis.plural(found.length, "client");
    const clusters = `${clients} in ${Cadis.plural(new Set(found).size, "cluster")}`;
    const threshold = formatOptional("threshold", run.threshold[frame]);
    const confidence = formatOptional("confidence", run.confidence[frame]);
    return `Round ${run.rounds[frame]}: ${clusters}${agreement}${threshold}${confidence}.`;
  }

  const formatOptional = (name, value) => (value == null ? "" : `; ${name}: ${Cadis.number(value, 2)}`);

  /** Describe participants that are not in the sample of clients. */
  function describeOthers({ run, frame }) {
    const { count, weight } = run.others[frame];
    if (!count) return "";
    return `Not shown: ${Cadis.plural(count, "more participant")} with a total weight of ${Cadis.number(weight)}.`;
  }

  const beside = () => matrixFigure.clientWidth >= 820; // as in the style sheet

  /** Show matrix and weights of the selected round. */
  function show() {
    const now = view();
    const text = describeRound(now);
    const at = now.run.rounds[now.frame];
    round.textContent = `${at} of ${now.run.rounds[now.run.rounds.length - 1]}`;
    slider.setAttribute("aria-valuetext", `round ${at}`);
    if (state.textContent !== text) state.textContent = text;
    othersNote.textContent = describeOthers(now);
    weights.style.height = beside() ? "" : `${64 + 26 * Math.max(2, Cadis.weightsRows(now))}px`;
    const { count, clusters } = now.run.others[now.frame];
    const participants = Cadis.plural(now.run.weights[now.frame].length + count, "participant");
    const names = now.order.map((client) => now.run.clients[client]).join();
    const update = names === drawnNames ? () => ({ series: Cadis.matrixSeries(now) }) : null;
    drawnNames = names;
    Cadis.refresh(matrix, `Similarities of ${now.order.length} clients. ${text}`, update);
    Cadis.refresh(weights, `Weights of ${participants} in ${Cadis.plural(clusters, "cluster")} in round ${at}.`);
  }

  function scheduleShow() {
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
    return scheduleShow();
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
    return scheduleShow();
  }

  function caption(run) {
    const strip = run.true ? "; colors at the left edge: true clusters" : "";
    const agreement = run.agreement ? " Agreement: adjusted Rand index (1: identical clusters, 0: random)." : "";
    const hasThreshold = run.threshold.some((value) => value != null);
    const threshold = hasThreshold ? " Threshold: smallest q at which two clients are put into one cluster." : "";
    const hasConfidence = run.confidence.some((value) => value != null);
    const confidence = hasConfidence ? " Confidence: how certain the server is that there are clusters (0 to 1)." : "";
    const q = run.measured
      ? "similarity q of each pair of clients, rescaled so that the least similar pair has 0 and identical clients " +
        "have 1"
      : "q of each pair of clients: of the rounds in which both clients took part, the fraction in which they were " +
        "in the same cluster, rescaled so that the smallest value is 0";
    const numbers =
      run.flow.rounds.length > 1 ? ' The tooltips of "Clusters over rounds" show the same cluster numbers.' : "";
    const shown = run.clients.length;
    const limits = run.sampled
      ? " The clusters, their agreement with the true clusters, and the smallest similarity, which becomes q = 0, " +
        "are computed from these clients only."
      : "";
    const sample = run.num_clients > shown ? ` ${shown} of ${run.num_clients} clients are shown.${limits}` : "";
    return (
      `First chart: ${q}; white outlines: the true or found clusters, as chosen at "Sort clients by"${strip}. ` +
      "Second chart: weight of each participant in the new global model. The label and color of a bar show in which " +
      `cluster the server put the participant in this round.${numbers}${agreement}${threshold}${confidence}${sample}`
    );
  }

  /** Show another run, or new rounds of the same run. */
  function showRun() {
    const run = selected();
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
    const stops = [0, 0.25, 0.5, 0.75, 1].map((fraction) => `rgb(${Cadis.viridis[Math.round(fraction * 254)].join(",")})`);
    const ramp = make("span", { class: "ramp" });
    ramp.style.background = `linear-gradient(to right, ${stops.join(",")})`;
    return make(
      "p",
      { class: "scale" },
      "similarity q: 0 ",
      ramp,
      " 1 ",
      make("span", {}, make("span", { class: "ramp unknown" }), " unknown (never in the same round)"),
    );
  }

  function makeRoundControl() {
    const oninput = () => {
      stop();
      scheduleShow();
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
    select = Cadis.select("run", "Run", () => showRun());
    order = Cadis.radios("order", "Sort clients by", orders, show);
    return make("div", { class: "controls" }, select, order, makeRoundControl());
  }

  function build(root) {
    const panel = controls();
    state = make("p", { class: "state", "aria-live": "polite" });
    othersNote = make("p", { class: "quiet" });
    matrix = Cadis.chart(
      "chart-matrix",
      (width) => Cadis.matrixOption(view(), width),
      (chart) => Cadis.watchMatrix(chart, view),
    );
    weights = Cadis.chart("chart-weights", () => Cadis.weightsOption(view(), beside()));
    matrixFigure = Cadis.figure("", scale(), make("div", { class: "pair" }, matrix, weights), othersNote);
    flow = Cadis.chart("chart-flow", (width) => Cadis.flowOption(selected(), width));
    flowFigure = Cadis.figure("", flow);
    root.append(panel, state, matrixFigure, make("h3", {}, "Clusters over rounds"), flowFigure);
  }

  function update(data) {
    sectionData = { runs: data.runs.filter(started) };
    select.set(
      sectionData.runs.map((run) => [
        key(run),
        `${Cadis.clip(Cadis.method(run.method).name, 32)}, seed ${run.seed}`,
      ]),
    );
    showRun();
  }

  Cadis.section({
    id: "clusters",
    name: "Clusters",
    title: "Clusters of clients",
    build,
    update,
    empty: (data) => !data.runs.some(started),
    lead:
      "Bright blocks along the diagonal are groups of similar clients. Move the slider to see how they form. " +
      "CADIS gives a client a smaller weight the more similar participants there are, so that large " +
      "clusters do not dominate; among similar clients, those with more samples have larger weights.",
  });
})(window.Cadis);
