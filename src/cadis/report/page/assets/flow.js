/* Clusters over rounds, as a Sankey diagram. */
(function (Cadis) {
  "use strict";

  /** Return the clusters of each round: {id, depth, cluster, clients, position}; depth is the index of the column. */
  function nodes(flow) {
    return flow.rounds.flatMap((_, depth) => {
      const groups = new Map();
      flow.found[depth].forEach((cluster, client) => {
        if (!groups.has(cluster)) groups.set(cluster, []);
        groups.get(cluster).push(client);
      });
      return [...groups]
        .sort((a, b) => a[0] - b[0])
        .map(([cluster, clients], position) => ({ id: `${depth}/${cluster}`, depth, cluster, clients, position }));
    });
  }

  function links(flow) {
    const counts = new Map();
    for (let depth = 1; depth < flow.rounds.length; depth += 1) {
      flow.found[depth].forEach((cluster, client) => {
        const key = JSON.stringify([`${depth - 1}/${flow.found[depth - 1][client]}`, `${depth}/${cluster}`]);
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

  /** A cluster keeps its number over rounds, and so its color. */
  const color = ({ cluster }) => Cadis.clusterColor(cluster);

  const title = (node) => (node.cluster < 0 ? "no cluster yet (has not taken part)" : `cluster ${node.cluster}`);

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
    return rounds.map((round, depth) => ({
      type: "text",
      id: `head-${depth}`,
      silent: true,
      x: left + depth * step + 7,
      y: 6,
      style: {
        text: depth ? String(round) : `round ${round}`,
        align: depth ? "center" : "left",
        x: depth ? 0 : -7,
        fill: colors.muted,
        font: `12px ${colors.font}`,
      },
    }));
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

  Cadis.flowOption = function (run, width) {
    if (run.flow.rounds.length < 2) return null;
    const list = nodes(run.flow);
    const all = new Map(list.map((node) => [node.id, node]));
    const most = Cadis.largest(list.map((node) => node.position));
    const [left, right] = [8, 42];
    const flow = {
      type: "sankey",
      id: "flow",
      ...{ left, right, top: 28, bottom: 10 },
      nodeWidth: 14,
      nodeGap: most > 30 ? 2 : 8,
      draggable: false,
      data: boxes(list),
      links: links(run.flow),
      emphasis: { focus: "adjacency" },
      lineStyle: { color: "target", opacity: 0.35 },
      label: label(all),
      labelLayout: { hideOverlap: true },
    };
    const tooltip = Cadis.tooltip("item", tip(run, all));
    return { graphic: columnTitles(run.flow.rounds, width, left, right), tooltip, series: [flow] };
  };

  Cadis.showFlow = function (chart, figure, run) {
    const enough = run.flow.rounds.length > 1;
    figure.hidden = !enough;
    figure.previousElementSibling.hidden = !enough;
    if (!enough) return;
    const counts = run.flow.rounds.map(
      (round, depth) => `${new Set(run.flow.found[depth].filter((cluster) => cluster >= 0)).size} in round ${round}`,
    );
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
      `Gray: clients that have not taken part yet.${sample}`;
    Cadis.refresh(chart, `Number of clusters: ${counts.join(", ")}.`);
  };
})(window.Cadis);
