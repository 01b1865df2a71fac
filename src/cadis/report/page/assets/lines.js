/* Lines over rounds with bands, for accuracy, fairness and the similarity error. */
(function (Cadis) {
  "use strict";

  // gaps are long enough to see a line below, such as FedAvg below FedProx
  const DASHES = { solid: "solid", dashed: [8, 7], dotted: [2, 4] };
  const silent = { symbol: "none", silent: true, lineStyle: { opacity: 0 }, emphasis: { disabled: true } };

  /** Return a line through points [round, value, ...]; label: text at its right end. */
  Cadis.line = function ({ id, name, color, dash, points, width = 2.2, opacity = 1, label = null }) {
    const shade = Cadis.color(color);
    return {
      type: "line",
      id,
      name,
      symbol: "none",
      z: 3,
      // a single point does not make a visible line
      showSymbol: points.length === 1,
      ...(points.length === 1 ? { symbol: "circle", symbolSize: 8 } : {}),
      data: points.map(([round, value]) => [round, value]),
      color: shade,
      lineStyle: { width, opacity, type: DASHES[dash] ?? "solid" },
      emphasis: { disabled: true },
      endLabel: {
        show: Boolean(label),
        formatter: () => label,
        color: Cadis.colors().ink,
        fontSize: 12,
        lineHeight: 14,
        distance: 6,
        width: 136,
        overflow: "break", // wrap long names
      },
      labelLayout: { moveOverlap: "shiftY" },
    };
  };

  /** Return a band around points [round, mean, deviation]: an invisible line with a stacked area. */
  Cadis.band = function ({ id, name, color, points, lowest = 0, highest = 1 }) {
    const low = points.map(([round, mean, deviation]) => [round, Math.max(lowest, mean - deviation)]);
    const high = points.map(([round, mean, deviation], position) => [
      round,
      Math.max(0, Math.min(highest, mean + deviation) - low[position][1]),
    ]);
    const common = { type: "line", name, stack: id, stackStrategy: "all", z: 1, ...silent };
    return [
      { ...common, id: `${id}-low`, data: low },
      { ...common, id: `${id}-high`, data: high, areaStyle: { color: Cadis.color(color), opacity: 0.15 } },
    ];
  };

  /** Return a tooltip of all lines at a round, highest first. lines: [{name, color, points, hasDeviation}]. */
  Cadis.lineTip = (lines, legend, digits, title = (round) => `round ${round}`) =>
    function (hits) {
      const hit = [].concat(hits)[0];
      if (!hit) return "";
      const round = hit.axisValue;
      const rows = lines()
        .filter((line) => legend.shows(line.name))
        .map((line) => {
          // values on a logarithmic axis are rounded
          const point = line.points.find(([at]) => Math.abs(at - round) <= 1e-9 * at);
          const more = point && line.hasDeviation && point[2] ? `±${Cadis.number(point[2], digits)}` : "";
          return (
            point && { value: point[1], row: [line.color, line.name, `${Cadis.number(point[1], digits)}${more}`] }
          );
        });
      const sorted = rows.filter(Boolean).sort((a, b) => b.value - a.value);
      return Cadis.tip(
        title(round),
        sorted.map(({ row }) => row),
      );
    };

  function makeZoom(right, formatLabel) {
    const { line, muted } = Cadis.colors();
    const slider = {
      type: "slider",
      height: 22,
      bottom: 6,
      left: 48,
      right,
      brushSelect: false,
      showDataShadow: false,
      borderColor: line,
      textStyle: { color: muted },
      fillerColor: "rgba(128,140,155,0.22)",
      labelFormatter: formatLabel,
    };
    // without Ctrl, the mouse wheel scrolls the page
    const inside = {
      type: "inside",
      zoomOnMouseWheel: "ctrl",
      moveOnMouseWheel: false,
      preventDefaultMouseMove: false,
    };
    return [slider, inside];
  }

  /** Return an axis of rounds; a single round is in the middle. */
  const roundAxis = (rounds, first) => ({
    name: "round",
    type: "value",
    min: rounds > first ? first : first - 1,
    max: Math.max(first + 1, rounds),
    minInterval: 1,
    axisLabel: { formatter: (at) => (Number.isInteger(at) ? String(at) : "") },
    formatLabel: (at) => Math.round(at),
  });

  /** Return an axis of simulated time: {at: [...], logarithmic}. */
  Cadis.timeAxis = ({ at, logarithmic }) => ({
    name: `simulated time (seconds${logarithmic ? ", logarithmic" : ""})`,
    type: logarithmic ? "log" : "value",
    min: logarithmic ? at[0] : 0,
    max: at[at.length - 1],
    minInterval: 0,
    axisLabel: { formatter: (time) => Number(Number(time).toPrecision(2)).toLocaleString("en") },
    formatLabel: (time) => Cadis.short(time),
  });

  /**
   * Return the options of a chart of lines: axes, legend, tooltip, and a slider for zooming if `zoom`.
   * The horizontal axis is the rounds if no `axis` is given. The vertical axis fits the data; with `fromZero` it
   * begins at 0, and with `isFraction`, for values from 0 to 1, it never ends above 1.
   */
  Cadis.overRounds = function (given) {
    const { width, value, rounds, first = 1, tip, legend, labels, axis } = given;
    const { fromZero = false, zoom = false, isFraction = false } = given;
    const { line, muted } = Cadis.colors();
    const { name, formatLabel, ...across } = axis ?? roundAxis(rounds, first);
    const right = labels && width > 700 ? 150 : 16;
    return {
      grid: { ...Cadis.base().grid, bottom: zoom ? 40 : 8, right },
      legend: legend.option(),
      xAxis: Cadis.axis(name, {
        ...across,
        splitLine: { show: false },
        axisLine: { show: true, lineStyle: { color: line } },
      }),
      yAxis: Cadis.axis(value, {
        min: fromZero ? 0 : null,
        ...(isFraction ? { max: ({ max }) => (max > 0.9 ? 1 : null) } : {}),
        scale: !fromZero,
        nameGap: 12,
        splitNumber: 4,
      }),
      tooltip: Cadis.tooltip("axis", tip, { axisPointer: { snap: true, lineStyle: { color: muted } } }),
      ...(zoom ? { dataZoom: makeZoom(right, formatLabel) } : {}),
    };
  };
})(window.Cadis);
