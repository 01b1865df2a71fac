/* Accuracy of the global model on the data of each client. */
(function (Cadis) {
  "use strict";

  const MAX_POINTS = 600; // per method
  const MIN_TESTS = 3; // with fewer tested rounds, there is no chart over rounds
  const MAX_TABLE_CLIENTS = 12; // with more clients, there is no table of clients
  let sectionData, boxes, boxFigure, rounds, legend, details, clientTable, history;
  // {method, name, color, dash, hasDeviation, lastTest: [{value, client, seed}], points: [round, mean, deviation]}
  let groups = [];

  /** Return [round, mean, deviation] over clients, averaged over seeds. */
  function overRounds(runs) {
    const wanted = Cadis.union(runs.map((run) => run.rounds));
    const valuesOf = (key) => runs.map((run) => Cadis.valuesAt(wanted, run.rounds, run[key]));
    const [means, deviations] = [valuesOf("mean"), valuesOf("deviation")];
    return wanted
      .map((round, position) => [
        round,
        Cadis.mean(means.map((values) => values[position])),
        Cadis.mean(deviations.map((values) => values[position])),
      ])
      .filter(([, mean]) => mean != null);
  }

  function makeGroup([method, runs]) {
    const { name, color, dash } = Cadis.method(method);
    const lastTest = runs
      .flatMap(({ clients, seed, last }) => last.map((value, client) => ({ value, client: clients[client], seed })))
      .filter(({ value }) => value != null);
    return { method, name, color, dash, hasDeviation: true, lastTest, points: overRounds(runs) };
  }

  function summarize({ lastTest }) {
    const values = lastTest.map(({ value }) => value).sort((a, b) => a - b);
    const quantiles = [0, 0.25, 0.5, 0.75, 1].map((fraction) => Cadis.quantile(values, fraction));
    return { mean: Cadis.mean(values), worst: values[0], quantiles };
  }

  function boxTip({ seriesType, dataIndex, data }) {
    if (seriesType === "scatter")
      return Cadis.tip(`client ${data.client}`, [
        [null, "accuracy", Cadis.number(data.value[0])],
        [null, "method", data.method],
        [null, "seed", data.seed],
      ]);
    const words = ["minimum", "lower quartile", "median", "upper quartile", "maximum"];
    const { quantiles } = summarize(groups[dataIndex]);
    return Cadis.tip(
      groups[dataIndex].name,
      words.map((word, position) => [null, word, Cadis.number(quantiles[position])]).reverse(),
    );
  }

  /** Return an even sample of very many clients, from the worst to the best. */
  function samplePoints(lastTest) {
    if (lastTest.length <= MAX_POINTS) return lastTest;
    const sorted = [...lastTest].sort((a, b) => a.value - b.value);
    const step = (lastTest.length - 1) / (MAX_POINTS - 1);
    return Array.from({ length: MAX_POINTS }, (_, index) => sorted[Math.round(index * step)]);
  }

  function dots({ name, color, lastTest }, row) {
    return samplePoints(lastTest).map(({ value, client, seed }, position) => ({
      value: [value, row + (Cadis.hash(position + 1) - 0.5) * 0.5],
      client,
      seed,
      method: name,
      itemStyle: { color: Cadis.color(color), opacity: 0.6 },
    }));
  }

  function boxSeries() {
    const itemStyle = { color: "transparent", borderColor: Cadis.colors().ink, borderWidth: 1.5 };
    const common = { emphasis: { disabled: true } };
    const data = groups.map((group) => summarize(group).quantiles);
    return [
      { type: "scatter", id: "clients", yAxisIndex: 1, symbolSize: 5, data: groups.flatMap(dots), ...common },
      { type: "boxplot", id: "boxes", boxWidth: [14, 26], itemStyle, data, ...common },
    ];
  }

  function boxOption(width) {
    const names = groups.map(({ name }) => name);
    const axisLabel = { color: Cadis.colors().ink, interval: 0 };
    return {
      xAxis: Cadis.axis(`accuracy on a client's ${sectionData.own_data}`, { max: 1, scale: true }),
      yAxis: [
        Cadis.names("", names, width > 700 ? 24 : 12, { inverse: true, axisLabel }),
        // points have random positions within a row, which needs an axis of numbers
        { type: "value", show: false, inverse: true, min: -0.5, max: groups.length - 0.5 },
      ],
      tooltip: Cadis.tooltip("item", boxTip),
      series: boxSeries(),
    };
  }

  const testedRounds = () => Cadis.union(groups.map(({ points }) => points.map(([round]) => round)));

  function roundsOption(width) {
    const tested = testedRounds();
    const labels = groups.length < 9;
    return {
      ...Cadis.overRounds({
        width,
        value: `accuracy on clients' ${sectionData.own_data}`,
        isFraction: true,
        first: tested[0],
        rounds: tested.at(-1),
        legend,
        labels,
        tip: Cadis.lineTip(() => groups, legend, 3),
      }),
      series: groups.flatMap(({ method, name, color, dash, points }) => [
        ...Cadis.band({ id: `band-${method}`, name, color, points }),
        Cadis.line({
          id: `mean-${method}`,
          name,
          color,
          dash,
          points,
          label: width > 700 && labels ? Cadis.clip(name, 40) : null,
        }),
      ]),
    };
  }

  /** Return [name, mean over clients and seeds, worst client] of each method. */
  function summaries() {
    return groups.map((group) => {
      const { mean, worst } = summarize(group);
      return [group.name, Cadis.number(mean), Cadis.number(worst)];
    });
  }

  /** Return a table of accuracy by client, mean over seeds; null for many clients, or clients without names. */
  function makeClientTable() {
    const names = [...new Set(groups.flatMap(({ lastTest }) => lastTest.map(({ client }) => client)))];
    if (names.length > MAX_TABLE_CLIENTS || names.every((name) => /^\d+$/.test(name))) return null;
    const meanOf = ({ lastTest }, name) =>
      Cadis.mean(lastTest.filter(({ client }) => client === name).map(({ value }) => value));
    return {
      caption: `Accuracy of each client on its ${sectionData.own_data}, last tested round`,
      columns: ["client", ...groups.map(({ name }) => name)],
      rows: names.map((name) => [name, ...groups.map((group) => Cadis.number(meanOf(group, name)))]),
      best: [],
    };
  }

  function roundsTable() {
    const wanted = testedRounds();
    const step = Math.ceil(wanted.length / 50);
    const kept = wanted.filter((_, position) => (wanted.length - 1 - position) % step === 0);
    return {
      caption: `Accuracy on clients' ${sectionData.own_data}: mean ± standard deviation over clients`,
      columns: ["round", ...groups.map(({ name }) => name)],
      rows: kept.map((round) => [
        round,
        ...groups.map(({ points }) => {
          const point = points.find(([at]) => at === round);
          return point ? `${Cadis.number(point[1])}±${Cadis.number(point[2])}` : "–";
        }),
      ]),
    };
  }

  function build(root) {
    boxes = Cadis.chart("chart-fairness", boxOption);
    rounds = Cadis.chart("chart-fairness-rounds", roundsOption);
    legend = Cadis.legend(rounds, "Methods");
    details = Cadis.details("Show as a table", roundsTable);
    boxFigure = Cadis.figure("", boxes);
    clientTable = Cadis.make("div", {});
    history = Cadis.make(
      "div",
      {},
      Cadis.make("h3", {}, "Over rounds"),
      Cadis.figure(
        "Lines: mean over clients; bands: ± one standard deviation over clients. Both are averaged over seeds.",
        legend.element,
        rounds,
      ),
      details,
    );
    root.append(boxFigure, clientTable, history);
  }

  function caption() {
    const count = Cadis.largest(groups.map(({ lastTest }) => lastTest.length));
    const tested = sectionData.runs.map((run) => run.sample).find(Boolean);
    const sample = tested ? ` Only ${tested} are tested, the same ones in each test.` : "";
    const drawn = count > MAX_POINTS ? ` Only ${MAX_POINTS} of ${count} points per method are drawn.` : "";
    const heldOut = sectionData.own_data === "own test data" ? " These data are not used for training." : "";
    return (
      "Each point is one client and seed in the last tested round. The box contains the middle half of the " +
      `points, its line is the median, and the whiskers end at the minimum and maximum.${drawn}${sample}${heldOut}`
    );
  }

  function update(data) {
    sectionData = data;
    groups = Cadis.byMethod(sectionData.runs)
      .map(makeGroup)
      .filter(({ lastTest }) => lastTest.length);
    boxes.style.height = `${80 + 48 * Math.max(2, groups.length)}px`;
    boxFigure.caption.textContent = caption();
    const table = makeClientTable();
    Cadis.fill(clientTable, table, () => (table ? [Cadis.table(table)] : []));
    legend.set(groups.map(({ name, color, dash }) => ({ name, color, dash })));
    history.hidden = testedRounds().length < MIN_TESTS;
    const lines = summaries();
    const words = lines.map(([name, mean, worst]) => `${name} ${mean}, worst client ${worst}`).join("; ");
    Cadis.refresh(boxes, `Accuracy on clients' ${sectionData.own_data}. Means: ${words}.`);
    const means = lines.map(([name, mean]) => `${name} ${mean}`).join(", ");
    Cadis.refresh(rounds, `Mean accuracy over clients, by round. Last round: ${means}.`);
    details.refresh();
  }

  Cadis.section({
    id: "fairness",
    name: "Fairness",
    title: "Fairness: accuracy of each client",
    build,
    update,
    empty: (data) => !data.runs.some((run) => run.last.length),
    lead:
      "The model that each client uses is tested on the data of that client. " +
      "A fair method has a narrow box, and no client far to the left.",
  });
})(window.Cadis);
