/* Similarity matrix (Q-matrix) of a round. */
(function (Cadis) {
  "use strict";

  const picture = document.createElement("canvas"); // one pixel per pair of clients
  const enlarged = document.createElement("canvas"); // in screen resolution
  const decoded = new WeakMap(); // run -> bytes of each frame (a round of the slider), decoded when first shown

  function bytes(run, frame) {
    if (!decoded.has(run)) decoded.set(run, []);
    const known = decoded.get(run);
    known[frame] ??= Uint8Array.from(atob(run.q[frame]), (letter) => letter.charCodeAt(0));
    return known[frame];
  }

  /** Return the byte of a pair: 0 to 254 for q from 0 to 1, 255 for unknown. */
  function pair(values, count, one, other) {
    if (one === other) return 254;
    const [i, j] = one < other ? [one, other] : [other, one];
    return values[i * count - (i * (i + 1)) / 2 + (j - i - 1)];
  }

  /** Paint the matrix pixel by pixel, because a heat map of 14,400 rectangles is too slow for the slider. */
  function paint({ run, frame, order }) {
    const count = order.length;
    const values = bytes(run, frame);
    const unknown = Cadis.channels(Cadis.colors().unknown);
    picture.width = picture.height = count;
    const context = picture.getContext("2d");
    const image = context.createImageData(count, count);
    let at = 0;
    for (const one of order) {
      for (const other of order) {
        const byte = pair(values, count, one, other);
        const color = byte === 255 ? unknown : Cadis.viridis[byte];
        image.data[at] = color[0];
        image.data[at + 1] = color[1];
        image.data[at + 2] = color[2];
        image.data[at + 3] = 255;
        at += 4;
      }
    }
    context.putImageData(image, 0, 0);
  }

  /** Enlarge the picture without smoothing. */
  function enlarge(width, height) {
    enlarged.width = Math.round(width * devicePixelRatio);
    enlarged.height = Math.round(height * devicePixelRatio);
    const context = enlarged.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(picture, 0, 0, enlarged.width, enlarged.height);
    return enlarged;
  }

  /** Return outlines around clusters, white on black, which are visible on any color. */
  function outlines(blocks, step, { x, y }) {
    return blocks.flatMap(({ start, end }) =>
      [
        ["#000000", 4],
        ["#ffffff", 2],
      ].map(([stroke, lineWidth]) => ({
        type: "rect",
        silent: true,
        z2: 5,
        style: { stroke, lineWidth, fill: null },
        shape: {
          x: x + start * step[0],
          y: y + start * step[1],
          width: (end - start) * step[0],
          height: (end - start) * step[1],
        },
      })),
    );
  }

  /** Return a strip with the colors of the true clusters at the left edge. */
  function strip({ run, order }, step, { x, y }) {
    if (!run.true) return [];
    return Cadis.blocks(order, run.true).map(({ cluster, start, end }) => ({
      type: "rect",
      silent: true,
      shape: { x: x - 9, y: y + start * step[1], width: 6, height: (end - start) * step[1] },
      style: { fill: Cadis.clusterColor(cluster) },
    }));
  }

  const item =
    (view) =>
    ({ coordSys }) => {
      const { x, y, width, height } = coordSys;
      const step = [width / view.order.length, height / view.order.length];
      const image = { type: "image", style: { image: enlarge(width, height), x, y, width, height } };
      return {
        type: "group",
        children: [image, ...strip(view, step, coordSys), ...outlines(view.blocks, step, coordSys)],
      };
    };

  // the chart of weights has the same margins, so that its rows are aligned with the matrix
  Cadis.matrixEdges = { top: 8, bottom: 60, outerBoundsMode: "none" };

  /** Return the series; for another round in the same order, nothing else changes. */
  Cadis.matrixSeries = function (view) {
    paint(view);
    return [{ type: "custom", id: "matrix", data: [[0, 0]], renderItem: item(view), clip: false }];
  };

  Cadis.matrixOption = function (view, width) {
    const names = view.order.map((client) => view.run.clients[client]);
    // show only some names, at least 15 pixels apart
    const interval = Math.max(0, Math.ceil((15 * names.length) / (width - 88)) - 1);
    const label = { interval, fontSize: 11 };
    return {
      grid: { left: 80, right: 8, ...Cadis.matrixEdges },
      xAxis: Cadis.names("client", names, 5, { nameGap: 42, axisLabel: { ...label, rotate: 90 } }),
      yAxis: Cadis.names("client", names, 8, { inverse: true, nameGap: 64, axisLabel: { ...label, margin: 14 } }),
      tooltip: { ...Cadis.base().tooltip, triggerOn: "none" },
      series: Cadis.matrixSeries(view),
    };
  };

  function tip({ run, frame, order }, column, row) {
    const [one, other] = [order[row], order[column]];
    const byte = pair(bytes(run, frame), order.length, one, other);
    const rows = [[null, "similarity q", byte === 255 ? "unknown" : Cadis.number(byte / 254)]];
    if (run.true && one !== other)
      rows.push([null, "same true cluster", run.true[one] === run.true[other] ? "yes" : "no"]);
    const found = run.found[frame];
    if (one !== other)
      rows.push([null, "same found cluster", found[one] >= 0 && found[one] === found[other] ? "yes" : "no"]);
    return Cadis.tip(`${Cadis.clip(run.clients[one], 28)} and ${Cadis.clip(run.clients[other], 28)}`, rows);
  }

  /** Show tooltips of cells: for ECharts, the matrix is a single picture. */
  Cadis.watchMatrix = function (chart, view) {
    const pointer = chart.getZr();
    const hide = () => chart.dispatchAction({ type: "hideTip" });
    pointer.on("mousemove", ({ offsetX, offsetY }) => {
      const pixel = [offsetX, offsetY];
      if (!chart.containPixel("grid", pixel)) return hide();
      const [column, row] = chart.convertFromPixel("grid", pixel);
      const text = tip(view(), column, row);
      chart.dispatchAction({ type: "showTip", x: offsetX, y: offsetY, tooltip: { formatter: () => text } });
    });
    pointer.on("globalout", hide);
  };
})(window.Cadis);
