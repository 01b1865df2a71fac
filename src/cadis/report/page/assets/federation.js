/* Training samples of each client and class, as bubbles. */
(function (Cadis) {
  "use strict";

  const make = Cadis.make;
  let part, chart, seed, figure;

  const selected = () => part.seeds.find((one) => String(one.seed) === seed.list.value) || part.seeds[0];

  /** Return client positions, sorted by cluster. */
  function sortByCluster({ clients, cluster }) {
    const positions = clients.map((_, position) => position);
    return cluster ? positions.sort((a, b) => cluster[a] - cluster[b] || a - b) : positions;
  }

  /** Return consecutive clients of the same cluster: [{cluster, start, end}], end not included. */
  Cadis.blocks = function (order, cluster) {
    const blocks = [];
    order.forEach((client, place) => {
      const last = blocks[blocks.length - 1];
      if (last && last.cluster === cluster[client]) last.end = place + 1;
      else blocks.push({ cluster: cluster[client], start: place, end: place + 1 });
    });
    return blocks;
  };

  /** Return a function that draws lines between clusters, and cluster numbers for color-blind readers. */
  function separators(blocks, count, wide) {
    return ({ coordSys: { x, y, width, height: tall } }) => {
      const colors = Cadis.colors();
      const step = (wide ? width : tall) / count;
      const line = (at) =>
        wide
          ? { x1: x + at, x2: x + at, y1: y - 16, y2: y + tall }
          : { y1: y + at, y2: y + at, x1: x, x2: x + width + 20 };
      const children = blocks.flatMap(({ cluster, start, end }) => {
        const middle = ((start + end) / 2) * step;
        const place = wide ? { x: x + middle, y: y - 10 } : { x: x + width + 12, y: y + middle };
        const name = {
          type: "text",
          style: {
            text: String(cluster),
            ...place,
            align: "center",
            verticalAlign: "middle",
            fill: colors.ink,
            fontSize: 12,
            fontWeight: 600,
          },
        };
        return start
          ? [{ type: "line", shape: line(start * step), style: { stroke: colors.muted, lineWidth: 1 } }, name]
          : [name];
      });
      return { type: "group", silent: true, children };
    };
  }

  function bubbles(one, order, wide, size) {
    const largest = Cadis.largest(one.samples.flat(), 1);
    const points = [];
    order.forEach((client, place) =>
      (one.samples[client] || []).forEach((samples, kind) => {
        if (!samples) return;
        const cluster = one.cluster ? one.cluster[client] : 0;
        points.push({
          value: wide ? [place, kind] : [kind, place],
          client,
          kind,
          samples,
          cluster,
          // the area, not the radius, is proportional to the number
          symbolSize: Math.max(2, 2 * size * Math.sqrt(samples / largest)),
          itemStyle: {
            color: Cadis.clusterColor(cluster),
            borderColor: Cadis.colors().ink,
            borderWidth: 0.5,
            opacity: 0.9,
          },
        });
      }),
    );
    return points;
  }

  function tip(one) {
    return ({ data }) =>
      Cadis.tip(`client ${one.clients[data.client]}`, [
        [null, "class", Cadis.clip(part.classes[data.kind], 32)],
        [null, "samples", data.samples],
        ...(one.cluster ? [[Cadis.clusterColor(data.cluster), "true cluster", data.cluster]] : []),
      ]);
  }

  function radius(width, one, wide) {
    const rows = wide ? part.classes.length : one.clients.length;
    const columns = wide ? one.clients.length : part.classes.length;
    const step = [(width - 100) / columns, (height(width, one) - 70) / rows];
    return Math.max(2, Math.min(14, 0.48 * Math.max(...step), 0.6 * Math.min(...step)));
  }

  function series(one, order, wide, size) {
    const points = {
      type: "scatter",
      id: "bubbles",
      z: 3,
      data: bubbles(one, order, wide, size),
      emphasis: { disabled: true },
    };
    if (!one.cluster) return [points];
    const renderItem = separators(Cadis.blocks(order, one.cluster), order.length, wide);
    return [{ type: "custom", id: "clusters", silent: true, data: [[0, 0]], z: 1, renderItem }, points];
  }

  function option(width) {
    const one = selected();
    const order = sortByCluster(one);
    const wide = isWide(width, one);
    const clients = ["client", order.map((client) => one.clients[client]), 14];
    const classes = ["class", part.classes, 14];
    const [across, down] = wide ? [clients, classes] : [classes, clients];
    const rotate = across[1].some((name) => name.length > 4) ? 60 : 0;
    return {
      grid: { ...Cadis.base().grid, top: wide && one.cluster ? 28 : 8, right: wide ? 12 : 32, bottom: 12 },
      xAxis: Cadis.names(...across, { axisLabel: { rotate } }),
      yAxis: Cadis.names(...down, { inverse: true }),
      tooltip: Cadis.tooltip("item", tip(one)),
      series: series(one, order, wide, radius(width, one, wide)),
    };
  }

  // on wide screens, many clients are shown along the x-axis
  const isWide = (width, one) => width > 640 && one.clients.length >= part.classes.length;

  function height(width, one) {
    const rows = isWide(width, one) ? part.classes.length : one.clients.length;
    const step = rows <= 16 ? 26 : rows <= 30 ? 22 : 14;
    return Math.max(240, Math.min(900, 100 + step * rows));
  }

  function describe(one) {
    const clusters = one.cluster ? ` in ${Cadis.plural(one.clusters, "true cluster")}` : "";
    const classes = Cadis.plural(part.classes.length, "class", "classes");
    const held = one.held ? `; ${Cadis.plural(one.held, "held-out test sample")} in total` : "";
    const range = `${one.range[0]} to ${one.range[1]} training samples per client${held}`;
    const shown = one.clients.length;
    const sample = one.num_clients > shown ? ` ${shown} of the ${one.num_clients} clients are shown.` : "";
    return `${Cadis.plural(one.num_clients, "client")}${clusters}, ${classes}, ${range}.${sample}`;
  }

  function show() {
    const one = selected();
    const text = describe(one);
    const colors =
      " Colors and the numbers along the edge: true clusters. Clients of a cluster have the same classes. " +
      "The server does not know the true clusters.";
    chart.style.height = `${height(chart.clientWidth || chart.parentElement.clientWidth, one)}px`;
    figure.caption.textContent = text + (one.cluster ? colors : "");
    Cadis.refresh(chart, `Samples by client and class: ${text}`);
  }

  function build(root) {
    seed = Cadis.select("federation-seed", "Seed", show);
    chart = Cadis.chart("chart-federation", option);
    new ResizeObserver(() => {
      if (part) chart.style.height = `${height(chart.clientWidth, selected())}px`;
    }).observe(chart);
    figure = Cadis.figure("", chart);
    root.append(make("div", { class: "controls" }, seed), figure);
  }

  function update(data) {
    part = data;
    seed.set(part.seeds.map((one) => [String(one.seed), String(one.seed)]));
    show();
  }

  Cadis.section({
    id: "federation",
    name: "Data",
    title: "Data of the clients",
    build,
    update,
    empty: (data) => !data.seeds.length,
    lead: "Each bubble is one class of one client. Its area is proportional to the number of training samples.",
  });
})(window.Cadis);
