/* Training samples of each client and class, as bubbles. */
(function (Cadis) {
  "use strict";

  const make = Cadis.make;
  let sectionData, chart, seed, figure;

  const selected = () => sectionData.seeds.find((one) => String(one.seed) === seed.list.value) || sectionData.seeds[0];

  /** Return client indices, sorted by cluster. */
  function sortByCluster({ clients, cluster }) {
    const indices = clients.map((_, index) => index);
    return cluster ? indices.sort((a, b) => cluster[a] - cluster[b] || a - b) : indices;
  }

  /**
   * Return the blocks of consecutive clients of the same cluster: [{cluster, start, end}], end not included.
   * `order` has client indices, `cluster` the cluster of each client.
   */
  Cadis.blocks = function (order, cluster) {
    const blocks = [];
    order.forEach((client, index) => {
      const last = blocks[blocks.length - 1];
      if (last && last.cluster === cluster[client]) last.end = index + 1;
      else blocks.push({ cluster: cluster[client], start: index, end: index + 1 });
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
        const center = wide ? { x: x + middle, y: y - 10 } : { x: x + width + 12, y: y + middle };
        const name = {
          type: "text",
          style: {
            text: String(cluster),
            ...center,
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

  function bubbles(seedData, order, wide, size) {
    const largest = Cadis.largest(seedData.samples.flat(), 1);
    const points = [];
    order.forEach((client, index) =>
      (seedData.samples[client] || []).forEach((samples, classIndex) => {
        if (!samples) return;
        const cluster = seedData.cluster ? seedData.cluster[client] : 0;
        points.push({
          value: wide ? [index, classIndex] : [classIndex, index],
          client,
          classIndex,
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

  function tip(seedData) {
    return ({ data }) =>
      Cadis.tip(`client ${seedData.clients[data.client]}`, [
        [null, "class", Cadis.clip(sectionData.classes[data.classIndex], 32)],
        [null, "samples", data.samples],
        ...(seedData.cluster ? [[Cadis.clusterColor(data.cluster), "true cluster", data.cluster]] : []),
      ]);
  }

  function radius(width, seedData, wide) {
    const rows = wide ? sectionData.classes.length : seedData.clients.length;
    const columns = wide ? seedData.clients.length : sectionData.classes.length;
    const step = [(width - 100) / columns, (height(width, seedData) - 70) / rows];
    return Math.max(2, Math.min(14, 0.48 * Math.max(...step), 0.6 * Math.min(...step)));
  }

  function series(seedData, order, wide, size) {
    const points = {
      type: "scatter",
      id: "bubbles",
      z: 3,
      data: bubbles(seedData, order, wide, size),
      emphasis: { disabled: true },
    };
    if (!seedData.cluster) return [points];
    const renderItem = separators(Cadis.blocks(order, seedData.cluster), order.length, wide);
    return [{ type: "custom", id: "clusters", silent: true, data: [[0, 0]], z: 1, renderItem }, points];
  }

  function option(width) {
    const seedData = selected();
    const order = sortByCluster(seedData);
    const wide = isWide(width, seedData);
    const clients = ["client", order.map((client) => seedData.clients[client]), 14];
    const classes = ["class", sectionData.classes, 14];
    const [across, down] = wide ? [clients, classes] : [classes, clients];
    const rotate = across[1].some((name) => name.length > 4) ? 60 : 0;
    return {
      grid: { ...Cadis.base().grid, top: wide && seedData.cluster ? 28 : 8, right: wide ? 12 : 32, bottom: 12 },
      xAxis: Cadis.names(...across, { axisLabel: { rotate } }),
      yAxis: Cadis.names(...down, { inverse: true }),
      tooltip: Cadis.tooltip("item", tip(seedData)),
      series: series(seedData, order, wide, radius(width, seedData, wide)),
    };
  }

  // on wide screens, many clients are shown along the x-axis
  const isWide = (width, seedData) => width > 640 && seedData.clients.length >= sectionData.classes.length;

  function height(width, seedData) {
    const rows = isWide(width, seedData) ? sectionData.classes.length : seedData.clients.length;
    const step = rows <= 16 ? 26 : rows <= 30 ? 22 : 14;
    return Math.max(240, Math.min(900, 100 + step * rows));
  }

  function describe(seedData) {
    const clusters = seedData.cluster ? ` in ${Cadis.plural(seedData.clusters, "true cluster")}` : "";
    const classes = Cadis.plural(sectionData.classes.length, "class", "classes");
    const heldOut = seedData.num_test_samples
      ? `; ${Cadis.plural(seedData.num_test_samples, "held-out test sample")} in total`
      : "";
    const range = `${seedData.range[0]} to ${seedData.range[1]} training samples per client${heldOut}`;
    const shown = seedData.clients.length;
    const sample = seedData.num_clients > shown ? ` ${shown} of the ${seedData.num_clients} clients are shown.` : "";
    return `${Cadis.plural(seedData.num_clients, "client")}${clusters}, ${classes}, ${range}.${sample}`;
  }

  function show() {
    const seedData = selected();
    const text = describe(seedData);
    const colors =
      " Colors and the numbers along the edge: true clusters, which are groups of clients with similar data. " +
      "The server does not know them.";
    chart.style.height = `${height(chart.clientWidth || chart.parentElement.clientWidth, seedData)}px`;
    figure.caption.textContent = text + (seedData.cluster ? colors : "");
    Cadis.refresh(chart, `Samples by client and class: ${text}`);
  }

  function build(root) {
    seed = Cadis.select("federation-seed", "Seed", show);
    chart = Cadis.chart("chart-federation", option);
    new ResizeObserver(() => {
      if (sectionData) chart.style.height = `${height(chart.clientWidth, selected())}px`;
    }).observe(chart);
    figure = Cadis.figure("", chart);
    root.append(make("div", { class: "controls" }, seed), figure);
  }

  function update(data) {
    sectionData = data;
    seed.set(sectionData.seeds.map((seedData) => [String(seedData.seed), String(seedData.seed)]));
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
