/* Error of the similarity matrix over rounds, with and without transitive learning. */
(function (Cadis) {
  "use strict";

  let part, chart, figure, legend, details;
  let lines = [];

  function compute() {
    const groups = Cadis.byMethod(part.runs);
    lines = groups
      .flatMap(([method, runs]) => {
        const wanted = Cadis.union(runs.map((run) => run.rounds));
        const one = (key, word, dash) => {
          const series = runs.filter((run) => run[key]).map((run) => Cadis.spread(run.rounds, run[key], wanted));
          const { name, color } = Cadis.method(method);
          // with one method, the two lines differ in color too: dashes are hard to see on steep lines
          const shade = groups.length === 1 && key === "without" ? "#D55E00" : color;
          return {
            id: `${key}-${method}`,
            name: `${groups.length > 1 ? `${name}, ` : ""}${word}`,
            color: shade,
            dash,
            points: Cadis.summarize(series, wanted),
            spread: series.length > 1,
          };
        };
        return [one("with", "with transitive learning", "solid"), one("without", "without transitive learning", "dashed")];
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
    const sample = part.runs.map((run) => run.sample).find(Boolean);
    const pairs = sample ? ` Computed from the pairs among ${sample}.` : "";
    return (
      "Mean squared difference between the similarity matrix after a round and the reference, in which each entry is " +
      "the mean of all similarities that were measured for the pair in the whole run; mean over seeds. " +
      `Solid: with transitive learning; dashed: without.${pairs}`
    );
  }

  function update(data) {
    part = data;
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
    name: "Convergence",
    title: "Convergence of the similarity matrix",
    build,
    update,
    empty: (data) => !data.runs.some((run) => run.rounds.length),
    lead:
      "Transitive learning estimates the similarity of two clients that have not taken part in the same round yet, " +
      "from the clients that both were compared with. Transitive learning helps where the solid line is below the dashed line.",
  });
})(window.Cadis);
