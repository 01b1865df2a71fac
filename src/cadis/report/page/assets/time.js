/* Computing time of the phases of a round. */
(function (Cadis) {
  "use strict";

  let sectionData, chart, legend, table;
  const PHASES = [
    ["train", "training", "#0072B2"],
    ["aggregate", "aggregation", "#D55E00"],
    ["evaluate", "evaluation", "#8A8F98"],
  ];

  const names = () => sectionData.methods.map(({ method }) => Cadis.method(method).name);

  function tip(hits) {
    const row = sectionData.methods[hits[0].dataIndex];
    return Cadis.tip(Cadis.method(row.method).name, [
      ...PHASES.map(([key, word, color]) => [color, word, `${Cadis.short(row[key])} s`]),
      [null, "wall-clock time", `${Cadis.short(row.total)} s`],
    ]);
  }

  function option(width) {
    const colors = Cadis.colors();
    return {
      legend: legend.option(),
      xAxis: Cadis.axis("seconds per round", { min: 0, splitNumber: width < 500 ? 3 : 5 }),
      yAxis: Cadis.axis("", {
        type: "category",
        inverse: true,
        data: names(),
        splitLine: { show: false },
        axisLabel: { color: colors.ink, interval: 0, formatter: (name) => Cadis.clip(name, width > 700 ? 24 : 12) },
      }),
      tooltip: { ...Cadis.base().tooltip, trigger: "axis", axisPointer: { type: "shadow" }, formatter: tip },
      series: PHASES.map(([key, word, color]) => ({
        type: "bar",
        id: key,
        name: word,
        stack: "seconds",
        color: color,
        barMaxWidth: 26,
        itemStyle: { borderColor: colors.surface, borderWidth: 0.5 },
        emphasis: { disabled: true },
        data: sectionData.methods.map((row) => row[key]),
      })),
    };
  }

  function formatRatio(ratio, isBaseline) {
    if (isBaseline) return "1.00x";
    return ratio == null ? "–" : `${Cadis.number(ratio, 2)}x`;
  }

  function content() {
    const baseline = Cadis.data.methods.find((method) => method.baseline);
    const relative = baseline ? `relative to ${Cadis.clip(baseline.name, 24)}` : "relative to the baseline";
    return {
      caption: "Seconds per round, and speed",
      columns: [
        "method",
        "training",
        "aggregation",
        "evaluation",
        "wall-clock",
        "training samples/s per worker",
        `aggregation time ${relative}`,
        `training speed ${relative}`,
      ],
      rows: sectionData.methods.map((row) => [
        Cadis.method(row.method).name,
        ...[row.train, row.aggregate, row.evaluate, row.total].map((seconds) => Cadis.number(seconds, 4)),
        row.samples_per_second == null ? "–" : Math.round(row.samples_per_second).toLocaleString("en"),
        ...[row.server_ratio, row.client_ratio].map((ratio) => formatRatio(ratio, Cadis.method(row.method).baseline)),
      ]),
    };
  }

  function describe(row) {
    const words = PHASES.map(([key, word]) => `${word} ${Cadis.short(row[key])}`);
    return `${Cadis.method(row.method).name} ${words.join(", ")}`;
  }

  function build(root) {
    chart = Cadis.chart("chart-time", option);
    legend = Cadis.legend(chart, "Phases of a round");
    table = Cadis.make("div");
    root.append(
      Cadis.figure(
        "Mean seconds per round. Training and evaluation are summed over the worker processes, " +
          "so their sum can be larger than the wall-clock time, which is the duration of the round.",
        legend.element,
        chart,
      ),
      table,
    );
  }

  function update(data) {
    sectionData = data;
    chart.style.height = `${80 + 40 * Math.max(2, sectionData.methods.length)}px`;
    legend.set(PHASES.map(([, name, color]) => ({ name, color, box: true })));
    const lines = content();
    Cadis.fill(table, lines, () => [Cadis.table(lines)]);
    Cadis.refresh(chart, `Seconds per round: ${sectionData.methods.map(describe).join("; ")}.`);
  }

  Cadis.section({
    id: "time",
    name: "Time",
    title: "Computing time",
    build,
    update,
    empty: (data) => !data.methods.length,
    lead: "Most of a round should be training. Aggregation is the time that the method takes on the server.",
  });
})(window.Cadis);
