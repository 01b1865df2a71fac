/* Where the time went. */
(function (Cadis) {
  "use strict";

  let part, chart, legend, table;
  const PARTS = [
    ["train", "training", "#0072B2"],
    ["aggregate", "aggregation", "#D55E00"],
    ["evaluate", "evaluation", "#8A8F98"],
  ];

  const names = () => part.methods.map(({ method }) => Cadis.method(method).name);

  function tip(hits) {
    const row = part.methods[hits[0].dataIndex];
    return Cadis.tip(Cadis.method(row.method).name, [
      ...PARTS.map(([key, word, colour]) => [colour, word, `${Cadis.short(row[key])} s`]),
      [null, "on the clock", `${Cadis.short(row.total)} s`],
    ]);
  }

  function option(width) {
    const colours = Cadis.colours();
    return {
      legend: legend.option(),
      xAxis: Cadis.axis("seconds a round", { min: 0, splitNumber: width < 500 ? 3 : 5 }),
      yAxis: Cadis.axis("", {
        type: "category",
        inverse: true,
        data: names(),
        splitLine: { show: false },
        axisLabel: { color: colours.ink, interval: 0, formatter: (name) => Cadis.clip(name, width > 700 ? 24 : 12) },
      }),
      tooltip: { ...Cadis.base().tooltip, trigger: "axis", axisPointer: { type: "shadow" }, formatter: tip },
      series: PARTS.map(([key, word, colour]) => ({
        type: "bar",
        id: key,
        name: word,
        stack: "seconds",
        color: colour,
        barMaxWidth: 26,
        itemStyle: { borderColor: colours.surface, borderWidth: 0.5 },
        emphasis: { disabled: true },
        data: part.methods.map((row) => row[key]),
      })),
    };
  }

  function content() {
    const baseline = Cadis.data.methods.find((method) => method.baseline);
    const relative = baseline ? `relative to ${Cadis.clip(baseline.name, 24)}` : "relative to the baseline";
    return {
      caption: "Seconds a round, and speed",
      columns: [
        "method",
        "training",
        "aggregation",
        "evaluation",
        "on the clock",
        "client samples a second",
        `the server's seconds, ${relative}`,
        `client samples a second, ${relative}`,
      ],
      rows: part.methods.map((row) => [
        Cadis.method(row.method).name,
        ...[row.train, row.aggregate, row.evaluate, row.total].map(Cadis.short),
        row.samples_per_second == null ? "–" : Math.round(row.samples_per_second).toLocaleString("en"),
        ...[row.server_ratio, row.client_ratio].map((ratio) => (ratio == null ? "–" : `× ${Cadis.number(ratio, 2)}`)),
      ]),
    };
  }

  function describe(row) {
    const words = PARTS.map(([key, word]) => `${word} ${Cadis.short(row[key])}`);
    return `${Cadis.method(row.method).name} ${words.join(", ")}`;
  }

  function build(root) {
    chart = Cadis.chart("chart-time", option);
    legend = Cadis.legend(chart, "Parts of a round");
    table = Cadis.make("div");
    root.append(
      Cadis.figure(
        "Mean seconds a round. Training and evaluation are summed over workers, so together they can exceed the clock.",
        legend.element,
        chart,
      ),
      table,
    );
  }

  function update(data) {
    part = data;
    chart.style.height = `${80 + 40 * Math.max(2, part.methods.length)}px`;
    legend.set(PARTS.map(([, name, colour]) => ({ name, colour, box: true })));
    const lines = content();
    Cadis.fill(table, lines, () => [Cadis.table(lines)]);
    Cadis.refresh(chart, `Seconds a round: ${part.methods.map(describe).join("; ")}.`);
  }

  Cadis.section({
    id: "time",
    name: "Time",
    title: "Where the time went",
    build,
    update,
    empty: (data) => !data.methods.length,
    lead: "Nearly all of a round should be training; what a method adds on the server is the aggregation.",
  });
})(window.Cadis);
