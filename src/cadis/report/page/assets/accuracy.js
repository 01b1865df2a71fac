/* Accuracy and other measures over rounds, or simulated time: a line a method, its seeds as a band or each. */
(function (Cadis) {
  "use strict";

  const make = Cadis.make;
  let part, chart, legend, figure, measure, smoothing, value, spread, over, details;
  let lines = []; // {method, name, colour, dash, points: [round, mean, deviation], seeds: [points]}

  function length() {
    return Math.max(1, ...part.runs.map((run) => run.all.length));
  }

  /** The chosen measure of the task; null if accuracy is chosen. */
  const further = () => part.measures.find((name) => `measure-${name}` === measure.list.value) ?? null;

  /** The times that are looked at; null if lines are over rounds. */
  const times = () => (part.times && over.chosen() === "time" ? part.times : null);

  const words = (name) => name.replaceAll("_", " ");

  /** A run's values of what is chosen, if it has any. */
  function values(run) {
    const name = further();
    return name === null ? run[measure.list.value] : run.measures[name];
  }

  /** Runs' values where they are looked at: null where, over time, not all of them are under way. */
  function placed(runs) {
    const width = Number(smoothing.value);
    const shown = runs.filter((run) => values(run) && (!times() || run.clock.length));
    const smoothed = shown.map((run) => Cadis.smooth(values(run), width));
    if (!times()) return smoothed;
    const timed = smoothed.map((one, position) => Cadis.atTimes(one, shown[position].clock, times().at));
    const whole = times().at.map((_, position) => timed.every((one) => one[position] != null));
    return timed.map((one) => one.map((value, position) => (whole[position] ? value : null)));
  }

  function line([index, runs], rounds) {
    const { name, colour, dash } = Cadis.method(index);
    const smoothed = placed(runs);
    const seeds = smoothed.map((values) =>
      values.map((one, position) => [rounds[position], one]).filter(([, one]) => one != null),
    );
    return {
      method: index,
      name,
      colour,
      dash,
      points: Cadis.summarise(smoothed, rounds),
      seeds,
      spread: smoothed.length > 1,
    };
  }

  function compute() {
    const rounds = times()?.at ?? Array.from({ length: length() }, (_, position) => position + 1);
    lines = Cadis.byMethod(part.runs)
      .map((group) => line(group, rounds))
      .filter((one) => one.points.length);
  }

  function series(one, width) {
    const { method, name, colour, dash, points, seeds } = one;
    // over time lines end anywhere, and a name there would lie on another line
    const end = width > 700 && lines.length < 9 && !times() ? Cadis.clip(name, 40) : null;
    const main = Cadis.line({ id: `mean-${method}`, name, colour, dash, points, label: end });
    const way = spread.chosen();
    const range = further() === null ? {} : { lowest: -Infinity, highest: Infinity };
    if (way === "band" && one.spread)
      return [...Cadis.band({ id: `band-${method}`, name, colour, points, ...range }), main];
    if (way !== "seeds" || !one.spread) return [main];
    const thin = seeds.map((seed, position) =>
      Cadis.line({ id: `seed-${method}-${position}`, name, colour, dash, points: seed, width: 1, opacity: 0.45 }),
    );
    return [...thin, main];
  }

  /** What the axis says: what is measured, and over how many rounds it is averaged. */
  function axisName() {
    const width = Number(smoothing.value);
    const what = further() ?? (measure.list.value === "rare" ? "accuracy on rare classes" : "accuracy");
    return `${words(what)}${width > 1 ? `, mean of ${width} rounds` : ""}`;
  }

  function option(width) {
    const labels = lines.length < 9 && !times();
    return {
      ...Cadis.overRounds({
        width,
        value: axisName(),
        share: further() === null,
        rounds: length(),
        axis: times() ? Cadis.timeAxis(times()) : null,
        legend,
        labels,
        zoom: true,
        tip: Cadis.lineTip(() => lines, legend, 3, times() ? (at) => `after ${Cadis.short(at)} s` : undefined),
      }),
      series: lines.flatMap((one) => series(one, width)),
    };
  }

  function table() {
    const tested = Cadis.union(lines.map(({ points }) => points.map(([round]) => round)));
    const rounds = Cadis.thin(tested.length).map((position) => tested[position - 1]);
    const rows = rounds.map((round) => [
      times() ? Cadis.short(round) : round,
      ...lines.map(({ points }) => {
        const point = points.find(([at]) => at === round);
        return point ? `${Cadis.number(point[1])}${point[2] ? ` ± ${Cadis.number(point[2])}` : ""}` : "–";
      }),
    ]);
    return {
      caption: `${measured()}, averaged over ${value.textContent}: mean ± standard deviation over seeds`,
      columns: [times() ? "simulated seconds" : "round", ...lines.map(({ name }) => name)],
      rows,
    };
  }

  function measured() {
    if (further() !== null) return `Measure ${words(further())}`;
    return `Accuracy on ${measure.list.value === "rare" ? "the rare classes" : "all classes"}`;
  }

  function label() {
    const last = lines
      .map(({ name, points }) => ({ name, at: points[points.length - 1][1] }))
      .sort((a, b) => b.at - a.at);
    const ends = last.map(({ name, at }) => `${name} ${Cadis.number(at)}`).join(", ");
    const along = times() ? `${Cadis.short(times().at.at(-1))} simulated seconds` : `${length()} rounds`;
    return `${measured()} over ${along}. At the end: ${ends}.`;
  }

  function caption() {
    const rare = part.rare ? ` Rare classes, those of the smallest clusters: ${Cadis.clip(part.rare, 120)}.` : "";
    const bands = spread.hidden ? "" : " Lines: mean over seeds; bands: ± one standard deviation over seeds.";
    const clock = times() ? " A round ends when its slowest participant is done; of FedAT, a tier's." : "";
    return (
      `${words(further() ?? "Accuracy")} of the global model on the test set, ` +
      "mean of a round and those before it, as many as chosen above. " +
      `What decides who wins: ${part.decides}.` +
      `${clock}${bands}${rare} To zoom, drag the handles below the plot, or hold Ctrl and turn the wheel.`
    );
  }

  function show() {
    compute();
    value.textContent = Cadis.plural(Number(smoothing.value), "round");
    legend.set(lines.map(({ name, colour, dash }) => ({ name, colour, dash })));
    figure.caption.textContent = caption();
    const title = document.getElementById("accuracy-title");
    const what = further() === null ? "Accuracy" : words(further()).replace(/^./, (letter) => letter.toUpperCase());
    title.textContent = `${what} over ${times() ? "simulated time" : "rounds"}`;
    Cadis.refresh(chart, label());
    details.refresh();
  }

  let waiting = false;
  function soon() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      show();
    });
  }

  function build(root) {
    measure = Cadis.select("measure", "Accuracy on", show);
    smoothing = make("input", {
      type: "range",
      id: "smoothing",
      min: 1,
      max: 50,
      step: 1,
      value: Cadis.data.accuracy.smoothing,
      oninput: soon,
    });
    value = make("output", { for: "smoothing" });
    spread = Cadis.radios(
      "spread",
      "Seeds as",
      [
        ["spread-band", "band", "band"],
        ["spread-seeds", "seeds", "each line"],
        ["spread-none", "none", "mean only"],
      ],
      show,
    );
    over = Cadis.radios(
      "over",
      "Over",
      [
        ["over-rounds", "rounds", "rounds"],
        ["over-time", "time", "simulated time"],
      ],
      show,
    );
    chart = Cadis.chart("chart-accuracy", option);
    legend = Cadis.legend(chart, "Methods");
    details = Cadis.details("As a table", table);
    figure = Cadis.figure("", legend.element, chart);
    const range = make("label", { class: "control" }, "Average over ", smoothing, " ", value);
    root.append(make("div", { class: "controls" }, measure, over, range, spread), figure, details);
  }

  function update(data) {
    part = data;
    const rare = part.runs.some((run) => run.rare);
    const several = part.measures.length > 0;
    const on = several ? "accuracy on " : "";
    measure.firstChild.data = several ? "Show " : "Accuracy on ";
    const choices = [
      ["all", `${on}all classes`],
      ...(rare ? [["rare", `${on}rare classes`]] : []),
      ...part.measures.map((name) => [`measure-${name}`, words(name)]),
    ];
    const decides = `measure-${part.metric}`; // what decides is shown first
    measure.set(choices.sort(([one], [other]) => (other === decides) - (one === decides)));
    over.hidden = !part.times;
    spread.hidden = !Cadis.byMethod(part.runs).some(([, runs]) => runs.length > 1);
    show();
  }

  Cadis.section({
    id: "accuracy",
    name: "Accuracy",
    title: "Accuracy over rounds",
    build,
    update,
    empty: (data) => !data.runs.some((run) => run.all.length),
    lead:
      "Look at where the lines end, and how early they get there. " +
      "Where bands overlap, seeds may differ more than methods do.",
  });
})(window.Cadis);
