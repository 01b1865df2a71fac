/* The life of a chart: made when near the screen, drawn again when its data, the theme or its width change. */
(function (Cadis) {
  "use strict";

  const entries = new Map(); // container -> entry
  const make = Cadis.make;
  Cadis.charts = {}; // id -> ECharts instance
  Cadis.rendered = 0;

  /** All drawing goes through here. Parts that are not given stay as they are: zoom, legend. */
  Cadis.render = function (chart, option) {
    // drawings beside the series cannot be replaced one by one
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
    if (!width) return; // hidden: drawn when it is shown
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

  /** A chart's container. option(width) gives what to draw; started(chart) is called once. */
  Cadis.chart = function (id, option, started) {
    const container = make("div", { id, class: "chart", role: "img" });
    const entry = { container, option, started, chart: null, near: false, stale: true, width: 0 };
    entries.set(container, entry);
    nearby.observe(container);
    sizes.observe(container);
    container.entry = entry;
    return container;
  };

  /** New data: drawn now if it can be seen, else when it is scrolled to; `some`: the part that is new, if not all. */
  Cadis.refresh = function (container, label, some = null) {
    const entry = container.entry;
    container.setAttribute("aria-label", label);
    if (some && entry.near && !entry.stale) return Cadis.render(entry.chart, some());
    entry.stale = true;
    return entry.near ? draw(entry) : null;
  };

  Cadis.forget = function (container) {
    const entry = entries.get(container);
    nearby.unobserve(container);
    sizes.unobserve(container);
    entries.delete(container);
    entry.chart?.dispose();
    delete Cadis.charts[container.id];
    container.remove();
  };

  /** Draw those that were drawn before, for a new theme; with `all` also those not yet seen, for print. */
  Cadis.redraw = function (all = false) {
    for (const entry of entries.values()) if (all || entry.chart) draw(entry);
  };
})(window.Cadis);
