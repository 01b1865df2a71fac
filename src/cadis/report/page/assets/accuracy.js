/* Accuracy and other metrics over rounds or simulated time, one line per method. */
(function (Cadis) {
  "use strict";

  const make = Cadis.make;
  let sectionData, lead, chart, legend, figure, metric, smoothing, value, seedDisplay, over, details;
  let lines = []; // {method, name, color, dash, hasDeviation, points: [round, mean, deviation], seeds: [points]}

  function length() {
    return Math.max(1, ...sectionData.runs.map((run) => run.all.length));
  }

  /** The selected metric of the task; null if accuracy is selected. */
  function taskMetric() {
    const names = Object.keys(sectionData.metrics);
    return names.find((name) => `metric-${name}` === metric.list.value) ?? null;
  }

  /** The axis of simulated time; null if lines are over rounds. */
  const times = () => (sectionData.times && over.chosen() === "time" ? sectionData.times : null);

  const isRare = () => metric.list.value === "rare";

  const metricName = () => (taskMetric() === null ? "accuracy" : sectionData.metrics[taskMetric()]);

  const capitalize = (text) => text.replace(/^./, (letter) => letter.toUpperCase());

  /** Return the values of the selected metric, if the run has any. */
  function values(run) {
    const name = taskMetric();
    return name === null ? run[metric.list.value] : run.metrics[name];
  }

  /** Return smoothed values of runs on the selected axis: null at times that not all runs have. */
  function valuesOnAxis(runs) {
    const width = Number(smoothing.value);
    const shown = runs.filter((run) => values(run) && (!times() || run.clock.length));
    const smoothed = shown.map((run) => Cadis.smooth(values(run), width));
    if (!times()) return smoothed;
    const timed = smoothed.map((curve, position) => Cadis.atTimes(curve, shown[position].clock, times().at));
    const known = times().at.map((_, position) => timed.every((curve) => curve[position] != null));
    return timed.map((curve) => curve.map((value, position) => (known[position] ? value : null)));
  }

  function makeLine([index, runs], rounds) {
    const { name, color, dash } = Cadis.method(index);
    const smoothed = valuesOnAxis(runs);
    const seeds = smoothed.map((values) =>
      values.map((value, position) => [rounds[position], value]).filter(([, value]) => value != null),
    );
    return {
      method: index,
      name,
      color,
      dash,
      points: Cadis.summarize(smoothed, rounds),
      seeds,
      hasDeviation: smoothed.length > 1,
    };
  }

  function compute() {
    const rounds = times()?.at ?? Array.from({ length: length() }, (_, position) => position + 1);
    lines = Cadis.byMethod(sectionData.runs)
      .map((group) => makeLine(group, rounds))
      .filter(({ points }) => points.length);
  }

  function series(line, width) {
    const { method, name, color, dash, hasDeviation, points, seeds } = line;
    // over time, lines end at different times, and a name there could cover another line
    const end = width > 700 && lines.length < 9 && !times() ? Cadis.clip(name, 40) : null;
    const main = Cadis.line({ id: `mean-${method}`, name, color, dash, points, label: end });
    const mode = seedDisplay.chosen();
    const range = taskMetric() === null ? {} : { lowest: -Infinity, highest: Infinity };
    if (mode === "band" && hasDeviation)
      return [...Cadis.band({ id: `band-${method}`, name, color, points, ...range }), main];
    if (mode !== "seeds" || !hasDeviation) return [main];
    const thin = seeds.map((seed, position) =>
      Cadis.line({ id: `seed-${method}-${position}`, name, color, dash, points: seed, width: 1, opacity: 0.45 }),
    );
    return [...thin, main];
  }

  /** Return the title of the y-axis: the metric, and the number of rounds it is averaged over. */
  function axisName() {
    const width = Number(smoothing.value);
    return `${metricName()}${isRare() ? " on rare classes" : ""}${width > 1 ? `, mean of ${width} rounds` : ""}`;
  }

  function option(width) {
    const labels = lines.length < 9 && !times();
    return {
      ...Cadis.overRounds({
        width,
        value: axisName(),
        isFraction: taskMetric() === null,
        rounds: length(),
        axis: times() ? Cadis.timeAxis(times()) : null,
        legend,
        labels,
        zoom: true,
        tip: Cadis.lineTip(() => lines, legend, 3, times() ? (at) => `after ${Cadis.short(at)} s` : undefined),
      }),
      series: lines.flatMap((line) => series(line, width)),
    };
  }

  function table() {
    const tested = Cadis.union(lines.map(({ points }) => points.map(([round]) => round)));
    const rounds = Cadis.thin(tested.length).map((position) => tested[position - 1]);
    const rows = rounds.map((round) => [
      times() ? Cadis.short(round) : round,
      ...lines.map(({ points }) => {
        const point = points.find(([at]) => at === round);
        return point ? `${Cadis.number(point[1])}${point[2] ? `±${Cadis.number(point[2])}` : ""}` : "–";
      }),
    ]);
    const averaged = Number(smoothing.value) > 1 ? `, averaged over ${value.textContent}` : "";
    return {
      caption: `${describeMetric()}${averaged}: mean ± standard deviation over seeds`,
      columns: [times() ? "simulated seconds" : "round", ...lines.map(({ name }) => name)],
      rows,
    };
  }

  function describeMetric() {
    if (taskMetric() !== null) return capitalize(metricName());
    return `Accuracy on ${isRare() ? "rare classes" : "all classes"}`;
  }

  function label() {
    const last = lines
      .map(({ name, points }) => ({ name, at: points[points.length - 1][1] }))
      .sort((a, b) => b.at - a.at);
    const ends = last.map(({ name, at }) => `${name} ${Cadis.number(at)}`).join(", ");
    const along = times() ? `${Cadis.short(times().at.at(-1))} simulated seconds` : `${length()} rounds`;
    return `${describeMetric()} over ${along}. At the end: ${ends}.`;
  }

  function caption() {
    const names = Cadis.clip(sectionData.rare, 120);
    const rare = sectionData.rare ? ` Rare classes: classes that only the smallest clusters have (${names}).` : "";
    const bands = seedDisplay.hidden ? "" : " Lines: mean over seeds; bands: ± one standard deviation over seeds.";
    const clock = times()
      ? " A round ends when its slowest participant has finished (in FedAT: when the slowest client of one tier, a " +
        "group of clients with similar speed, has finished)."
      : "";
    const main = sectionData.metrics[sectionData.metric] ?? "accuracy";
    const ranking =
      lines.length > 1 ? ` Methods are ranked by their mean ${main} over the ${sectionData.ranking}.` : "";
    const width = Number(smoothing.value);
    const mean = width > 1 ? `; each point is the mean of its round and the ${width - 1} before it` : "";
    return (
      `${capitalize(metricName())} of the global model on the test set${mean}.` +
      `${ranking}${bands}${clock}${rare} ` +
      "To zoom, drag the handles below the chart, or hold Ctrl and turn the mouse wheel."
    );
  }

  function show() {
    compute();
    value.textContent = Cadis.plural(Number(smoothing.value), "round");
    legend.set(lines.map(({ name, color, dash }) => ({ name, color, dash })));
    figure.caption.textContent = caption();
    const title = document.getElementById("accuracy-title");
    title.textContent = `${capitalize(metricName())} over ${times() ? "simulated time" : "rounds"}`;
    Cadis.refresh(chart, label());
    details.refresh();
  }

  let waiting = false;
  function scheduleShow() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      show();
    });
  }

  function build(root) {
    metric = Cadis.select("metric", "Accuracy on", show);
    smoothing = make("input", {
      type: "range",
      id: "smoothing",
      min: 1,
      max: 50,
      step: 1,
      value: Cadis.data.accuracy.smoothing,
      oninput: scheduleShow,
    });
    value = make("output", { for: "smoothing" });
    seedDisplay = Cadis.radios(
      "seed-display",
      "Show seeds as",
      [
        ["seeds-band", "band", "band"],
        ["seeds-lines", "seeds", "single lines"],
        ["seeds-none", "none", "mean only"],
      ],
      show,
    );
    over = Cadis.radios(
      "over",
      "Horizontal axis",
      [
        ["over-rounds", "rounds", "rounds"],
        ["over-time", "time", "simulated time"],
      ],
      show,
    );
    chart = Cadis.chart("chart-accuracy", option);
    legend = Cadis.legend(chart, "Methods");
    details = Cadis.details("Show as a table", table);
    figure = Cadis.figure("", legend.element, chart);
    lead = make("p", { class: "lead" });
    const range = make("label", { class: "control" }, "Average over ", smoothing, " ", value);
    root.append(lead, make("div", { class: "controls" }, metric, over, range, seedDisplay), figure, details);
  }

  function update(data) {
    sectionData = data;
    const rare = sectionData.runs.some((run) => run.rare);
    const several = Object.keys(sectionData.metrics).length > 0;
    const on = several ? "accuracy on " : "";
    metric.firstChild.data = several ? "Show " : "Accuracy on ";
    const choices = [
      ["all", `${on}all classes`],
      ...(rare ? [["rare", `${on}rare classes`]] : []),
      ...Object.entries(sectionData.metrics).map(([name, label]) => [`metric-${name}`, label]),
    ];
    const main = `metric-${sectionData.metric}`; // the main metric comes first
    metric.set(choices.sort(([a], [b]) => (b === main) - (a === main)));
    over.hidden = !sectionData.times;
    const groups = Cadis.byMethod(sectionData.runs);
    seedDisplay.hidden = !groups.some(([, runs]) => runs.length > 1);
    const overlap = seedDisplay.hidden
      ? ""
      : " Where bands overlap, the difference between methods may be due to the seed.";
    lead.textContent =
      groups.length > 1 ? `Compare the values in the last rounds, and how early a method reaches them.${overlap}` : "";
    lead.hidden = !lead.textContent;
    show();
  }

  Cadis.section({
    id: "accuracy",
    name: "Accuracy",
    title: "Accuracy over rounds",
    build,
    update,
    empty: (data) => !data.runs.some((run) => run.all.length),
  });
})(window.Cadis);
