/* How well the global model serves each client. */
(function (Cadis) {
  "use strict";

  const MOST = 600; // points of a method
  const SITES = 12; // clients that are named, if they have names
  let part, boxes, boxFigure, rounds, legend, details, sites;
  let groups = []; // {method, name, colour, dash, values: at the last round, all seeds; points over rounds}

  /** Over rounds: mean across clients, and deviation across clients, averaged over seeds. */
  function course(runs) {
    const wanted = Cadis.union(runs.map((run) => run.rounds));
    const over = (measure) => runs.map((run) => Cadis.spread(run.rounds, run[measure], wanted));
    const [means, deviations] = [over("mean"), over("deviation")];
    return wanted
      .map((round, position) => [
        round,
        Cadis.mean(means.map((one) => one[position])),
        Cadis.mean(deviations.map((one) => one[position])),
      ])
      .filter(([, mean]) => mean != null);
  }

  function group([method, runs]) {
    const { name, colour, dash } = Cadis.method(method);
    const points = runs
      .flatMap(({ clients, seed, last }) => last.map((value, client) => ({ value, client: clients[client], seed })))
      .filter(({ value }) => value != null);
    return { method, name, colour, dash, last: points, points: course(runs), spread: true };
  }

  function summary({ last }) {
    const values = last.map(({ value }) => value).sort((a, b) => a - b);
    const quantiles = [0, 0.25, 0.5, 0.75, 1].map((share) => Cadis.quantile(values, share));
    return { mean: Cadis.mean(values), worst: values[0], quantiles };
  }

  function boxTip({ seriesType, dataIndex, data }) {
    if (seriesType === "scatter")
      return Cadis.tip(`client ${data.client}`, [
        [null, "accuracy", Cadis.number(data.value[0])],
        [null, "method", data.method],
        [null, "seed", data.seed],
      ]);
    const words = ["worst", "quarter below", "median", "quarter above", "best"];
    const { quantiles } = summary(groups[dataIndex]);
    return Cadis.tip(
      groups[dataIndex].name,
      words.map((word, position) => [null, word, Cadis.number(quantiles[position])]).reverse(),
    );
  }

  /** Of very many clients an even choice, from the worst to the best; the box is that of all. */
  function drawn(last) {
    if (last.length <= MOST) return last;
    const sorted = [...last].sort((a, b) => a.value - b.value);
    return Array.from({ length: MOST }, (_, place) => sorted[Math.round((place * (last.length - 1)) / (MOST - 1))]);
  }

  function dots({ name, colour, last }, row) {
    return drawn(last).map(({ value, client, seed }, position) => ({
      value: [value, row + (Cadis.hash(position + 1) - 0.5) * 0.5],
      client,
      seed,
      method: name,
      itemStyle: { color: Cadis.colour(colour), opacity: 0.45 },
    }));
  }

  function boxSeries() {
    const itemStyle = { color: "transparent", borderColor: Cadis.colours().ink, borderWidth: 1.5 };
    const common = { emphasis: { disabled: true } };
    const data = groups.map((one) => summary(one).quantiles);
    return [
      { type: "scatter", id: "clients", yAxisIndex: 1, symbolSize: 5, data: groups.flatMap(dots), ...common },
      { type: "boxplot", id: "boxes", boxWidth: [14, 26], itemStyle, data, ...common },
    ];
  }

  function boxOption(width) {
    const names = groups.map(({ name }) => name);
    const axisLabel = { color: Cadis.colours().ink, interval: 0 };
    return {
      xAxis: Cadis.axis(`accuracy on a client's ${part.own}`, { max: 1, scale: true }),
      yAxis: [
        Cadis.names("", names, width > 700 ? 24 : 12, { inverse: true, axisLabel }),
        // points are put beside each other within a row, so their axis has to be of numbers
        { type: "value", show: false, inverse: true, min: -0.5, max: groups.length - 0.5 },
      ],
      tooltip: Cadis.tooltip("item", boxTip),
      series: boxSeries(),
    };
  }

  function roundsOption(width) {
    const last = Math.max(1, ...groups.flatMap(({ points }) => points.map(([round]) => round)));
    const labels = groups.length < 9;
    return {
      ...Cadis.overRounds({
        width,
        value: `accuracy on clients' ${part.own}`,
        share: true,
        rounds: last,
        legend,
        labels,
        tip: Cadis.lineTip(() => groups, legend, 3),
      }),
      series: groups.flatMap(({ method, name, colour, dash, points }) => [
        ...Cadis.band({ id: `band-${method}`, name, colour, points }),
        Cadis.line({
          id: `mean-${method}`,
          name,
          colour,
          dash,
          points,
          label: width > 700 && labels ? Cadis.clip(name, 40) : null,
        }),
      ]),
    };
  }

  /** Mean over all clients and seeds, and the worst client: [name, mean, worst]. */
  function inWords() {
    return groups.map((one) => {
      const { mean, worst } = summary(one);
      return [one.name, Cadis.number(mean), Cadis.number(worst)];
    });
  }

  /** Accuracy of each client by its name, mean over the seeds; null if there are many, or they have but numbers. */
  function siteTable() {
    const names = [...new Set(groups.flatMap(({ last }) => last.map(({ client }) => client)))];
    if (names.length > SITES || names.every((name) => /^\d+$/.test(name))) return null;
    const at = (one, name) => Cadis.mean(one.last.filter(({ client }) => client === name).map(({ value }) => value));
    return {
      caption: `Last accuracy on ${part.own}, by site`,
      columns: ["site", ...groups.map(({ name }) => name)],
      rows: names.map((name) => [name, ...groups.map((one) => Cadis.number(at(one, name)))]),
      best: [],
    };
  }

  function courseTable() {
    const wanted = Cadis.union(groups.map(({ points }) => points.map(([round]) => round)));
    const step = Math.ceil(wanted.length / 50);
    const kept = wanted.filter((_, position) => (wanted.length - 1 - position) % step === 0);
    return {
      caption: `Accuracy on the clients' ${part.own}: mean ± standard deviation across clients`,
      columns: ["round", ...groups.map(({ name }) => name)],
      rows: kept.map((round) => [
        round,
        ...groups.map(({ points }) => {
          const point = points.find(([at]) => at === round);
          return point ? `${Cadis.number(point[1])} ± ${Cadis.number(point[2])}` : "–";
        }),
      ]),
    };
  }

  function build(root) {
    boxes = Cadis.chart("chart-fairness", boxOption);
    rounds = Cadis.chart("chart-fairness-rounds", roundsOption);
    legend = Cadis.legend(rounds, "Methods");
    details = Cadis.details("As a table", courseTable);
    boxFigure = Cadis.figure("", boxes);
    sites = Cadis.make("div", {});
    root.append(
      boxFigure,
      sites,
      Cadis.make("h3", {}, "Over rounds"),
      Cadis.figure(
        "Mean across clients; bands: ± one standard deviation across clients, both averaged over seeds.",
        legend.element,
        rounds,
      ),
      details,
    );
  }

  function caption() {
    const most = Cadis.largest(groups.map(({ last }) => last.length));
    const tested = part.runs.map((run) => run.tested).find(Boolean);
    const sampled = tested ? ` Tested were ${tested}, the same ones every time.` : "";
    const some = most > MOST ? ` Of a method's ${most} points, ${MOST} are drawn, from the worst to the best.` : "";
    const held = part.own === "own test data" ? " Nobody trains on the test data." : "";
    return (
      "A point is a client (of each seed) at the last tested round; the box holds the middle half of them, " +
      `its line is the median, and its whiskers reach to the worst and the best.${some}${sampled}${held}`
    );
  }

  function update(data) {
    part = data;
    groups = Cadis.byMethod(part.runs)
      .map(group)
      .filter(({ last }) => last.length);
    boxes.style.height = `${80 + 48 * Math.max(2, groups.length)}px`;
    boxFigure.caption.textContent = caption();
    const table = siteTable();
    Cadis.fill(sites, table, () => (table ? [Cadis.table(table)] : []));
    legend.set(groups.map(({ name, colour, dash }) => ({ name, colour, dash })));
    const lines = inWords();
    const words = lines.map(([name, mean, worst]) => `${name} ${mean}, worst client ${worst}`).join("; ");
    Cadis.refresh(boxes, `Accuracy on the clients' ${part.own}. Means: ${words}.`);
    const means = lines.map(([name, mean]) => `${name} ${mean}`).join(", ");
    Cadis.refresh(rounds, `Mean accuracy across clients over rounds. At the end: ${means}.`);
    details.refresh();
  }

  Cadis.section({
    id: "fairness",
    name: "Fairness",
    title: "How fair the model is to clients",
    build,
    update,
    empty: (data) => !data.runs.some((run) => run.last.length),
    lead:
      "The global model that each client uses, tested on its own data. " +
      "A fair method has a narrow box, and no client far to the left.",
  });
})(window.Cadis);
