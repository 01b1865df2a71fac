/* How soon the similarities settle, with and without transitive learning. */
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
          const { name, colour } = Cadis.method(method);
          // with one method, the two lines have to differ in colour too: dashes get lost where lines are steep
          const shade = groups.length === 1 && key === "without" ? "#D55E00" : colour;
          return {
            id: `${key}-${method}`,
            name: `${groups.length > 1 ? `${name}, ` : ""}${word}`,
            colour: shade,
            dash,
            points: Cadis.summarise(series, wanted),
            spread: series.length > 1,
          };
        };
        return [one("with", "with transitive learning", "solid"), one("without", "without", "dashed")];
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
    details = Cadis.details("As a table", table);
    figure = Cadis.figure("", legend.element, chart);
    root.append(figure, details);
  }

  function caption() {
    const choice = part.runs.map((run) => run.choice).find(Boolean);
    const some = choice ? ` Of the pairs among ${choice}.` : "";
    return (
      "Mean squared error of the similarity matrix against the one that all observations of the run give, " +
      `mean over seeds. Solid: with transitive learning; dashed: without.${some}`
    );
  }

  function update(data) {
    part = data;
    compute();
    figure.caption.textContent = caption();
    legend.set(lines.map(({ name, colour, dash }) => ({ name, colour, dash })));
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
    title: "How soon the similarities settle",
    build,
    update,
    empty: (data) => !data.runs.some((run) => run.rounds.length),
    lead:
      "Transitive learning guesses how alike two clients are before they have met, from those both have met. " +
      "It helps as far as the solid line is below the dashed one.",
  });
})(window.Cadis);
