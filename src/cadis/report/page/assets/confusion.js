/* Confusion matrices, one per method. */
(function (Cadis) {
  "use strict";

  const make = Cadis.make;
  let sectionData, grid, figure, seed;
  const panels = new Map(); // position -> {element, chart, title}

  const selected = () => sectionData.seeds.find((one) => `${one.seed}` === seed.list.value) || sectionData.seeds[0];

  /** Return the names of the classes; a star marks rare classes. */
  const names = () => sectionData.classes.map((name, index) => (selected().rare.includes(index) ? `${name}*` : name));

  /** Return the counts divided by the number of samples of their true class; null for a class without samples. */
  function normalize(counts) {
    return counts.map((row) => {
      const sum = row.reduce((total, value) => total + value, 0);
      return row.map((value) => (sum ? value / sum : null));
    });
  }

  function accuracy(counts) {
    const total = counts.flat().reduce((sum, value) => sum + value, 0);
    return total ? counts.reduce((sum, row, position) => sum + row[position], 0) / total : null;
  }

  const percent = (fraction) => String(Math.round(fraction * 100));

  function cells(matrix, numbers) {
    return normalize(matrix.counts).flatMap((row, truth) =>
      row.map((fraction, guess) => ({
        value: [guess, truth, fraction ?? "-"],
        ...(numbers ? { label: { color: Cadis.inkOn(fraction || 0) } } : {}),
      })),
    );
  }

  function tip(matrix) {
    const name = (index) => Cadis.clip(sectionData.classes[index], 24);
    return ({ value: [guess, truth, fraction] }) =>
      Cadis.tip(`true ${name(truth)}, predicted ${name(guess)}`, [
        [null, "percentage of the true class", fraction === "-" ? "–" : `${(fraction * 100).toFixed(1)} %`],
        [null, "samples", matrix.counts[truth][guess]],
      ]);
  }

  function series(matrix, width) {
    const show = sectionData.classes.length <= 12;
    const fontSize = (width - 60) / sectionData.classes.length < 24 ? 9 : 11;
    const formatter = ({ value }) => (value[2] === "-" || value[2] < 0.005 ? "" : percent(value[2]));
    const label = { show, fontSize, formatter };
    // progressive rendering would flicker
    return {
      type: "heatmap",
      id: "confusion",
      data: cells(matrix, show),
      label,
      emphasis: { disabled: true },
      progressive: 0,
    };
  }

  function option(position, width) {
    const matrix = selected().matrices[position];
    if (!matrix) return null;
    const rotate = names().some((name) => name.length > 2) ? 60 : 0;
    return {
      grid: { ...Cadis.base().grid, right: 4, top: 4, bottom: 4 },
      xAxis: Cadis.names("predicted class", names(), 10, { axisLabel: { rotate, fontSize: 11 } }),
      yAxis: Cadis.names("true class", names(), 10, { inverse: true, axisLabel: { fontSize: 11 } }),
      visualMap: Cadis.scale(0, 1),
      tooltip: Cadis.tooltip("item", tip(matrix)),
      series: [series(matrix, width)],
    };
  }

  function panel(position) {
    if (panels.has(position)) return panels.get(position);
    const chart = Cadis.chart(`chart-confusion-${position}`, (width) => option(position, width));
    const title = make("h3");
    const element = make("div", { class: "panel" }, title, chart);
    panels.set(position, { element, chart, title });
    grid.append(element);
    return panels.get(position);
  }

  function build(root) {
    seed = Cadis.select("confusion-seed", "Seed", show);
    grid = make("div", { class: "panels" });
    figure = Cadis.figure("", grid);
    root.append(make("div", { class: "controls" }, seed), figure);
  }

  function describe({ method, counts }) {
    const fraction = accuracy(counts);
    const result = fraction == null ? "no test samples" : `${percent(fraction)} percent correct`;
    return `Confusion matrix of ${Cadis.method(method).name}, seed ${selected().seed}: ${result}.`;
  }

  function update(data) {
    sectionData = data;
    seed.set(sectionData.seeds.map((one) => [String(one.seed), String(one.seed)]));
    show();
  }

  function show() {
    const { matrices, rare } = selected();
    matrices.forEach((matrix, position) => {
      const { chart, title } = panel(position);
      title.textContent = Cadis.clip(Cadis.method(matrix.method).name, 40);
      Cadis.refresh(chart, describe(matrix));
    });
    for (const [position, { element, chart }] of panels) {
      if (position < matrices.length) continue;
      Cadis.removeChart(chart);
      element.remove();
      panels.delete(position);
    }
    const stars = rare.length ? " *: rare class, which only the smallest clusters have." : "";
    figure.caption.textContent =
      "Rows: true class; columns: predicted class. Each number is a percentage of the samples of the true " +
      `class, for one seed, after the last round.${stars}`;
  }

  Cadis.section({
    id: "confusion",
    name: "Confusion",
    title: "Confusion matrices",
    build,
    update,
    empty: (data) => !data.seeds.length,
    lead:
      "A perfect model has numbers on the diagonal only. Look at the rows of the rare classes: " +
      "large numbers outside the diagonal mean that the model confuses them with frequent classes.",
  });
})(window.Cadis);
