/* The main metric over parameters: a line for one parameter, a heat map for two, a table for more. */
(function (Cadis) {
  "use strict";

  const make = Cadis.make;
  let sectionData, chart, figure, box, details;

  const formatDeviation = ({ accuracy, deviation }) =>
    accuracy != null && deviation ? `±${Cadis.number(deviation)}` : "";
  const title = () => sectionData.metric.replace(/^./, (letter) => letter.toUpperCase());
  const text = (cell) => Cadis.number(cell.accuracy) + formatDeviation(cell);
  const at = (cell) => sectionData.parameters.map((name, index) => `${name} ${cell.values[index]}`).join(", ");
  const values = (position) => Cadis.ordered(sectionData.cells.map((cell) => cell.values[position]));

  function drawable() {
    const distinct = new Set(sectionData.cells.map((cell) => JSON.stringify(cell.values)));
    return sectionData.parameters.length <= 2 && distinct.size === sectionData.cells.length;
  }

  const ranked = () => [...sectionData.cells].sort((a, b) => (b.accuracy ?? -1) - (a.accuracy ?? -1));

  /** Return the settings with the highest mean; none for a single seed, which is not enough to compare. */
  const findBest = (rows) =>
    rows.filter((cell) => cell.deviation !== null && Cadis.number(cell.accuracy) === Cadis.number(rows[0].accuracy));

  function table() {
    const rows = ranked();
    return {
      caption: `${title()} of each setting, highest first: mean ± standard deviation over seeds`,
      columns: ["rank", ...sectionData.parameters, sectionData.metric],
      rows: rows.map((cell, position) => [position + 1, ...cell.values, text(cell)]),
      best: findBest(rows).map((_, position) => [position, sectionData.parameters.length + 1]),
    };
  }

  /** Draw an error bar of one standard deviation, with caps. */
  function bar(_, api) {
    const [low, high] = [api.coord([api.value(0), api.value(1)]), api.coord([api.value(0), api.value(2)])];
    const style = { stroke: Cadis.colors().ink, lineWidth: 1.5, fill: null };
    const piece = (x1, y1, x2, y2) => ({ type: "line", shape: { x1, y1, x2, y2 }, style });
    return {
      type: "group",
      children: [
        piece(low[0], low[1], high[0], high[1]),
        piece(low[0] - 5, low[1], low[0] + 5, low[1]),
        piece(high[0] - 5, high[1], high[0] + 5, high[1]),
      ],
    };
  }

  const cellTip = (cells) =>
    Cadis.tooltip("item", ({ dataIndex }) =>
      Cadis.tip(at(cells[dataIndex]), [[null, sectionData.metric, text(cells[dataIndex])]]),
    );
  const cellsWithValue = () => sectionData.cells.filter((cell) => cell.accuracy != null);

  function lineOption(names) {
    const indexOf = (cell) => names.indexOf(cell.values[0]);
    const cells = cellsWithValue().sort((a, b) => indexOf(a) - indexOf(b));
    const points = cells.map((cell) => [indexOf(cell), cell.accuracy]);
    const bars = cells.map(({ accuracy, deviation }, position) => [
      points[position][0],
      accuracy - (deviation || 0),
      accuracy + (deviation || 0),
    ]);
    const line = { symbolSize: 9, symbol: "circle", color: "#0072B2", emphasis: { disabled: true } };
    return {
      xAxis: Cadis.names(sectionData.parameters[0], names, 14, { nameGap: 28 }),
      yAxis: Cadis.axis(sectionData.metric, { scale: true, nameGap: 12 }),
      tooltip: cellTip(cells),
      series: [
        { type: "line", id: "line", data: points, ...line },
        { type: "custom", id: "bars", renderItem: bar, silent: true, encode: { x: 0, y: [1, 2] }, data: bars },
      ],
    };
  }

  function gridOption(columns, rows, width) {
    const cells = cellsWithValue();
    const known = cells.map((cell) => cell.accuracy);
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const ink = (value) => Cadis.inkOn(high > low ? (value - low) / (high - low) : 1);
    const findCell = ({ values: [first, second] }) => [columns.indexOf(first), rows.indexOf(second)];
    const isWide = (width - 90) / columns.length > 96;
    const formatter = ({ dataIndex }) => (isWide ? text(cells[dataIndex]) : Cadis.number(known[dataIndex]));
    const data = cells.map((cell) => ({
      value: [...findCell(cell), cell.accuracy],
      label: { color: ink(cell.accuracy) },
    }));
    const label = { show: true, fontSize: isWide ? 14 : 12, formatter };
    const itemStyle = { borderColor: Cadis.colors().surface, borderWidth: 2 };
    return {
      xAxis: Cadis.names(sectionData.parameters[0], columns, 14, { nameGap: 28 }),
      yAxis: Cadis.names(sectionData.parameters[1], rows, 14),
      visualMap: Cadis.scale(low, high),
      tooltip: cellTip(cells),
      series: [{ type: "heatmap", id: "grid", itemStyle, label, data }],
    };
  }

  function option(width) {
    if (!drawable()) return null;
    return sectionData.parameters.length === 1 ? lineOption(values(0)) : gridOption(values(0), values(1), width);
  }

  function build(root) {
    chart = Cadis.chart("chart-sweep", option);
    figure = Cadis.figure("", chart);
    details = Cadis.details("Show as a table", table);
    box = make("div");
    root.append(figure, details, box);
  }

  function update(data) {
    sectionData = data;
    const drawn = drawable();
    figure.hidden = details.hidden = !drawn;
    box.hidden = drawn;
    if (!drawn) return Cadis.fill(box, sectionData, () => [Cadis.table(table())]);
    const two = sectionData.parameters.length === 2;
    const ranking = Cadis.data.accuracy?.ranking ?? "last rounds";
    const mean = `${title()}: mean of the ${ranking} (of all rounds if there are fewer), averaged over seeds`;
    figure.caption.textContent = two
      ? `${mean}. Empty cells have not been run.`
      : `${mean}; bars: ± one standard deviation over seeds.`;
    if (two) chart.style.height = `${Math.min(640, 110 + 56 * values(1).length)}px`;
    const [best] = ranked();
    const parameters = sectionData.parameters.join(" and ");
    Cadis.refresh(chart, `${title()} by ${parameters}. Highest: ${text(best)} at ${at(best)}.`);
    details.refresh();
  }

  Cadis.section({
    id: "sweep",
    name: "Sweep",
    title: "Results by parameter",
    build,
    update,
    empty: (data) => !data.cells.some((cell) => cell.accuracy != null),
    lead: "Prefer a setting whose neighbors have high values too: a single high value may be due to chance.",
  });
})(window.Cadis);
