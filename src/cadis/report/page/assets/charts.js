/* Charts: created when near the screen, drawn again when data, theme or width change. */
(function (Cadis) {
  "use strict";

  const entries = new Map(); // container -> entry
  const make = Cadis.make;
  Cadis.charts = {}; // id -> ECharts instance
  Cadis.rendered = 0;

  /** Draw a chart. Options that are not given, such as zoom and legend, do not change. */
  Cadis.render = function (chart, option) {
    // graphic elements cannot be replaced one by one
    chart.setOption(option, option.graphic ? { notMerge: true } : { replaceMerge: ["series"] });
    Cadis.rendered += 1;
  };

  function start(entry) {
    entry.chart = echarts.init(entry.container, null, { renderer: "canvas" });
    Cadis.charts[entry.container.id] = entry.chart;
    entry.chart.on("legendselectchanged", ({ selected }) => entry.legend?.sync(selected));
    entry.started?.(entry.chart);
  }

  function draw(entry) {
    const width = entry.container.clientWidth;
    if (!width) return; // hidden: it is drawn when it becomes visible
    if (!entry.chart) start(entry);
    else if (entry.width !== width) entry.chart.resize();
    entry.stale = false;
    entry.width = width;
    const option = entry.option(width);
    if (option) Cadis.render(entry.chart, { ...Cadis.base(), ...option });
  }

  const nearby = new IntersectionObserver(
    (seen) => {
      for (const { target, isIntersecting } of seen) {
        const entry = entries.get(target);
        entry.near = isIntersecting;
        if (isIntersecting && entry.stale) draw(entry);
      }
    },
    { rootMargin: "300px" },
  );

  const sizes = new ResizeObserver((changes) =>
    requestAnimationFrame(() => {
      for (const { target } of changes) {
        const entry = entries.get(target);
        if (!entry.chart || !target.clientWidth) continue;
        entry.chart.resize();
        // options depend on the width: labels, margins
        if (entry.width !== target.clientWidth) draw(entry);
      }
    }),
  );

  /** Return the container of a chart. option(width) returns its options; started(chart) is called once. */
  Cadis.chart = function (id, option, started) {
    const container = make("div", { id, class: "chart", role: "img" });
    const entry = { container, option, started, chart: null, near: false, stale: true, width: 0 };
    entries.set(container, entry);
    nearby.observe(container);
    sizes.observe(container);
    container.entry = entry;
    return container;
  };

  /** Draw new data, now or when the chart is scrolled to. `update` returns the options that change, if not all do. */
  Cadis.refresh = function (container, label, update = null) {
    const entry = container.entry;
    container.setAttribute("aria-label", label);
    if (update && entry.near && !entry.stale) return Cadis.render(entry.chart, update());
    entry.stale = true;
    return entry.near ? draw(entry) : null;
  };

  Cadis.removeChart = function (container) {
    const entry = entries.get(container);
    nearby.unobserve(container);
    sizes.unobserve(container);
    entries.delete(container);
    entry.chart?.dispose();
    delete Cadis.charts[container.id];
    container.remove();
  };

  /** Redraw charts for a new theme; with `all`, also draw those not drawn yet, for printing. */
  Cadis.redraw = function (all = false) {
    for (const entry of entries.values()) if (all || entry.chart) draw(entry);
  };
})(window.Cadis);
