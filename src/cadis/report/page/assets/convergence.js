/* Error of the similarity matrix over rounds, with and without transitive learning. */
(function (Cadis) {
  "use strict";

  let sectionData, chart, figure, legend, details;
  let lines = [];

  function compute() {
    const groups = Cadis.byMethod(sectionData.runs);
    lines = groups
      .flatMap(([method, runs]) => {
        const wanted = Cadis.union(runs.map((run) => run.rounds));
        const makeLine = (key, label, dash) => {
          const series = runs.filter((run) => run[key]).map((run) => Cadis.valuesAt(wanted, run.rounds, run[key]));
          const { name, color } = Cadis.method(method);
          // with one method, the two lines differ in color too: dashes are hard to see on steep lines
          const shade = groups.length === 1 && key === "without" ? "#D55E00" : color;
          return {
            id: `${key}-${method}`,
            name: `${groups.length > 1 ? `${name}, ` : ""}${label}`,
            color: shade,
            dash,
            points: Cadis.summarize(series, wanted),
            hasDeviation: series.length > 1,
          };
        };
        return [
          makeLine("with", "with transitive learning", "solid"),
          makeLine("without", "without transitive learning", "dashed"),
        ];
      })
      .filter(({ points }) => points.length);
  }

  const rounds = () => Math.max(1, ...lines.flatMap(({ points }) => points.map(([round]) => round)));

  function option(width) {
    return {
      ...Cadis.overRounds({
        width,
        value: "mean squared error",
        rounds: rounds(),
        legend,
        labels: false,
        fromZero: true,
        tip: Cadis.lineTip(() => lines, legend, 4),
      }),
      series: lines.map((line) => Cadis.line(line)),
    };
  }

  function table() {
    const wanted = Cadis.union(lines.map(({ points }) => points.map(([round]) => round)));
    const kept = Cadis.thin(wanted.length).map((position) => wanted[position - 1]);
    return {
      caption: "Mean squared error of the similarity matrix, mean over seeds",
      columns: ["round", ...lines.map(({ name }) => name)],
      rows: kept.map((round) => [
        round,
        ...lines.map(({ points }) => Cadis.number(points.find(([at]) => at === round)?.[1], 4)),
      ]),
    };
  }

  function build(root) {
    chart = Cadis.chart("chart-convergence", option);
    legend = Cadis.legend(chart, "Lines");
    details = Cadis.details("Show as a table", table);
    figure = Cadis.figure("", legend.element, chart);
    root.append(figure, details);
  }

  function caption() {
    const sample = sectionData.runs.map((run) => run.sample).find(Boolean);
    const pairs = sample ? ` The matrices have ${sample}.` : "";
    return (
      "The error of a round is the mean squared difference between the similarities known after this round and the " +
      "final ones, which are the means of all similarities measured in the whole run. A similarity that is still " +
      `unknown counts as 0. Lines: mean over seeds; solid: with transitive learning, dashed: without.${pairs}`
    );
  }

  function update(data) {
    sectionData = data;
    compute();
    figure.caption.textContent = caption();
    legend.set(lines.map(({ name, color, dash }) => ({ name, color, dash })));
    const words = lines.map(
      ({ name, points }) =>
        `${name} from ${Cadis.number(points[0][1], 4)} to ${Cadis.number(points[points.length - 1][1], 4)}`,
    );
    Cadis.refresh(chart, `Error of the similarity matrix over ${rounds()} rounds: ${words.join("; ")}.`);
    details.refresh();
  }

  Cadis.section({
    id: "convergence",
    name: "Similarity error",
    title: "Error of the similarity matrix",
    build,
    update,
    empty: (data) => !data.runs.some((run) => run.rounds.length),
    lead:
      "The server measures the similarity of two clients when both take part in the same round. Until then, " +
      "transitive learning estimates it from other clients that were compared with each of the two. It helps where " +
      "the solid line is below the dashed line.",
  });
})(window.Cadis);
