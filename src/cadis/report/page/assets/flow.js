/* Clusters over rounds, as a Sankey diagram. */
(function (Cadis) {
  "use strict";

  const isAbsent = (run, depth, client) => run.last[client] != null && run.flow.rounds[depth] > run.last[client];

  /** Return the id of a client's box in a column. Clients that are absent for long have boxes of their own. */
  const box = (run, depth, client) =>
    `${depth}/${run.flow.found[depth][client]}${isAbsent(run, depth, client) ? "/absent" : ""}`;

  /** Return the boxes of all columns: {id, depth, cluster, absent, clients, position}; depth is the column's index. */
  function nodes(run) {
    return run.flow.rounds.flatMap((_, depth) => {
      const groups = new Map();
      run.flow.found[depth].forEach((cluster, client) => {
        const id = box(run, depth, client);
        const absent = isAbsent(run, depth, client);
        if (!groups.has(id)) groups.set(id, { id, depth, cluster, absent, clients: [] });
        groups.get(id).clients.push(client);
      });
      return [...groups.values()]
        .sort((a, b) => a.cluster - b.cluster || a.absent - b.absent)
        .map((node, position) => ({ ...node, position }));
    });
  }

  function links(run) {
    const counts = new Map();
    for (let depth = 1; depth < run.flow.rounds.length; depth += 1) {
      run.clients.forEach((_, client) => {
        const key = JSON.stringify([box(run, depth - 1, client), box(run, depth, client)]);
        counts.set(key, (counts.get(key) || 0) + 1);
      });
    }
    return [...counts].map(([key, value]) => {
      const [source, target] = JSON.parse(key);
      return { source, target, value };
    });
  }

  /** Return the most frequent true cluster of some clients, and its number of clients. */
  function majority(clients, truth) {
    const counts = new Map();
    for (const client of clients) counts.set(truth[client], (counts.get(truth[client]) || 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1])[0];
  }

  Cadis.majority = majority;

  /** A cluster keeps its number over rounds, and so its color, which is transparent if its clients are absent. */
  const color = ({ cluster, absent }) => Cadis.clusterColor(cluster) + (absent ? "40" : "");

  const title = ({ cluster, absent }) =>
    cluster < 0 ? "no cluster yet (has not taken part)" : `cluster ${cluster}${absent ? " (absent for long)" : ""}`;

  function tip(run, all) {
    return ({ dataType, data }) => {
      const from = all.get(dataType === "edge" ? data.source : data.name);
      if (dataType === "edge") {
        const to = all.get(data.target);
        return Cadis.tip(Cadis.plural(data.value, "client"), [
          [null, `round ${run.flow.rounds[from.depth]}`, title(from)],
          [null, `round ${run.flow.rounds[to.depth]}`, title(to)],
        ]);
      }
      const rows = [[null, "clients", from.clients.length]];
      if (run.true && from.cluster >= 0) {
        const [most, count] = majority(from.clients, run.true);
        rows.push([Cadis.clusterColor(most), `of true cluster ${most}`, count]);
      }
      const names = from.clients
        .slice(0, 8)
        .map((client) => Cadis.clip(run.clients[client], 14))
        .join(", ");
      rows.push([null, names + (from.clients.length > 8 ? ", …" : ""), ""]);
      return Cadis.tip(`round ${run.flow.rounds[from.depth]}: ${title(from)}`, rows);
    };
  }

  /** Return the round numbers above the columns. */
  function columnTitles(rounds, width, left, right) {
    const step = (width - left - right - 14) / Math.max(1, rounds.length - 1);
    const colors = Cadis.colors();
    const hasWord = (depth) => depth === 0 && step > 60; // otherwise there is no space for the word
    return rounds.map((round, depth) => ({
      type: "text",
      id: `head-${depth}`,
      silent: true,
      x: left + depth * step + 7,
      y: 6,
      style: {
        text: hasWord(depth) ? `round ${round}` : String(round),
        align: hasWord(depth) ? "left" : "center",
        x: hasWord(depth) ? -7 : 0,
        fill: colors.muted,
        font: `12px ${colors.font}`,
      },
    }));
  }

  function confidenceTitle(left) {
    const { muted, font } = Cadis.colors();
    const style = { text: "confidence", fill: muted, font: `12px ${font}` };
    return { type: "text", id: "confidence", silent: true, left, bottom: 60, style };
  }

  function boxes(list) {
    const { muted } = Cadis.colors();
    const style = (node) => ({ color: color(node), borderColor: muted, borderWidth: 0.5 });
    return list.map((node) => ({ name: node.id, depth: node.depth, itemStyle: style(node) }));
  }

  function label(all) {
    const { ink, surface } = Cadis.colors();
    const formatter = ({ name }) => String(all.get(name).clients.length);
    return { color: ink, fontSize: 12, formatter, textBorderColor: surface, textBorderWidth: 2 };
  }

  const countClusters = ({ found }, depth) => new Set(found[depth].filter((cluster) => cluster >= 0)).size;
  const hasConfidence = ({ confidence }) => confidence.some((value) => value != null);

  /** Return bars of the confidence below the columns; hollow in rounds without clusters. */
  function confidenceBars({ flow }, left, right) {
    const { ink, muted, surface } = Cadis.colors();
    const color = (depth) => (countClusters(flow, depth) > 1 ? muted : surface);
    const data = flow.confidence.map((value, depth) => ({
      value: [depth, value],
      itemStyle: { color: color(depth), borderColor: muted },
    }));
    const formatter = ({ value }) => Cadis.number(value[1], 2);
    const label = { show: true, position: "top", distance: 3, color: ink, fontSize: 12, formatter };
    return {
      grid: { left: left + 7, right: right + 7, height: 36, bottom: 4, outerBoundsMode: "none" },
      xAxis: { type: "value", show: false, min: 0, max: flow.rounds.length - 1, containShape: false },
      yAxis: { type: "value", show: false, min: 0, max: 1 },
      bars: { type: "bar", id: "confidence", silent: true, clip: false, barWidth: 14, data, label },
    };
  }

  Cadis.flowOption = function (run, width) {
    if (run.flow.rounds.length < 2) return null;
    const list = nodes(run);
    const all = new Map(list.map((node) => [node.id, node]));
    const most = Cadis.largest(list.map((node) => node.position));
    const [left, right] = [8, 42];
    const flow = {
      type: "sankey",
      id: "flow",
      ...{ left, right, top: 28, bottom: hasConfidence(run.flow) ? 84 : 10 },
      nodeWidth: 14,
      nodeGap: most > 30 ? 2 : 8,
      draggable: false,
      data: boxes(list),
      links: links(run),
      emphasis: { focus: "adjacency" },
      lineStyle: { color: "target", opacity: 0.35 },
      label: label(all),
      labelLayout: { hideOverlap: true },
    };
    const tooltip = Cadis.tooltip("item", tip(run, all));
    const graphic = columnTitles(run.flow.rounds, width, left, right);
    if (!hasConfidence(run.flow)) return { graphic, tooltip, series: [flow] };
    const { bars, ...axes } = confidenceBars(run, left, right);
    return { ...axes, graphic: [...graphic, confidenceTitle(left)], tooltip, series: [flow, bars] };
  };

  Cadis.showFlow = function (chart, figure, run) {
    const enough = run.flow.rounds.length > 1;
    figure.hidden = !enough;
    figure.previousElementSibling.hidden = !enough;
    if (!enough) return;
    const counts = run.flow.rounds.map((round, depth) => `${countClusters(run.flow, depth)} in round ${round}`);
    const confidences = run.flow.confidence.map((value) => Cadis.number(value, 2));
    const confidence = hasConfidence(run.flow) ? ` Confidence: ${confidences.join(", ")}.` : "";
    const bars = confidence
      ? " Bars: confidence of the server that there are clusters (0 to 1); an empty bar means that it found none."
      : "";
    const absent = run.last.some((last) => last != null)
      ? " Pale: clients that have been absent for long, compared with their absences before."
      : "";
    const shown = run.clients.length;
    const sample = run.num_clients > shown ? ` ${shown} of ${run.num_clients} clients are shown.` : "";
    const skipped = run.flow.rounds.length < run.flow.rounds.at(-1) ? " (not all rounds are shown)" : "";
    const truth = run.true
      ? " In the last column, found clusters are paired with true clusters so that pairs have as many clients in " +
        "common as possible; the clusters of a pair have the same color."
      : "";
    figure.caption.textContent =
      `Each column is a round${skipped}, and each box is a cluster that the server found. The height of a box and ` +
      "the number beside it show how many clients the cluster has. A band between two boxes shows the clients that " +
      "are in the left cluster in one round and in the right cluster in the next round shown. A cluster keeps its " +
      `color while it keeps most of its clients.${truth} ` +
      `Gray: clients that have not taken part yet.${absent}${bars}${sample}`;
    Cadis.refresh(chart, `Number of clusters: ${counts.join(", ")}.${confidence}`);
  };
})(window.Cadis);
