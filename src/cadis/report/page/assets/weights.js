/* Weights of the participants of a round, beside the matrix. */
(function (Cadis) {
  "use strict";

  /** Return the rows of the chart: all clients if it is beside the matrix, else only participants. */
  function rows(view, beside) {
    const weights = new Map(view.run.weights[view.frame].map((entry) => [entry[0], entry]));
    const order = beside ? view.order : view.order.filter((client) => weights.has(client));
    return order.map((client) => ({ client, name: view.run.clients[client], entry: weights.get(client) }));
  }

  /**
   * Return the number under which each cluster of the participants is shown. The method's own numbers may change from
   * round to round. The page shows the number that most of the cluster's clients have in the flow chart.
   */
  function clusterNumbers({ run, frame }) {
    const groups = new Map();
    for (const [client, , cluster] of run.weights[frame]) {
      if (!groups.has(cluster)) groups.set(cluster, []);
      groups.get(cluster).push(client);
    }
    const numbers = new Map();
    const taken = new Set();
    const used = new Set([...run.found, ...run.flow.found].flat());
    let unused = 0;
    for (const [cluster, clients] of [...groups].sort((a, b) => b[1].length - a[1].length)) {
      let [number] = Cadis.majority(clients, run.found[frame]);
      if (number < 0 || taken.has(number)) {
        // the flow chart does not have this cluster, so its number must not occur there
        while (used.has(unused) || taken.has(unused)) unused += 1;
        number = unused;
      }
      taken.add(number);
      numbers.set(cluster, number);
    }
    return numbers;
  }

  Cadis.weightsRows = (view) => rows(view, false).length;

  function bars(list, numbers) {
    const { muted } = Cadis.colors();
    const color = (cluster) => Cadis.clusterColor(numbers.get(cluster));
    const style = (cluster) => ({ color: color(cluster), borderColor: muted, borderWidth: 0.5 });
    return list.map(({ entry }) => (entry ? { value: entry[1], itemStyle: style(entry[2]) } : { value: null }));
  }

  function tip(list, numbers) {
    return ({ dataIndex }) => {
      const { name, entry } = list[dataIndex];
      const weight = [null, "weight", Cadis.number(entry[1], 4)];
      const number = numbers.get(entry[2]);
      return Cadis.tip(name, [weight, [Cadis.clusterColor(number), "cluster in this round", number]]);
    };
  }

  Cadis.weightsOption = function (view, beside) {
    const list = rows(view, beside);
    const numbers = clusterNumbers(view);
    const formatter = ({ dataIndex: at }) => {
      const [, weight, cluster] = list[at].entry;
      return `${Cadis.number(weight)} · cluster ${numbers.get(cluster)}`;
    };
    const names = list.map(({ name }) => name);
    const interval = (position) => Boolean(list[position]?.entry); // name participants only
    return {
      grid: { left: 76, right: 112, ...Cadis.matrixEdges },
      xAxis: Cadis.axis("weight in the global model", { min: 0, splitNumber: 2, minInterval: 0.01 }),
      yAxis: Cadis.names("", names, 8, { inverse: true, axisLabel: { fontSize: 11, interval } }),
      tooltip: Cadis.tooltip("item", tip(list, numbers)),
      series: [
        {
          type: "bar",
          id: "weights",
          data: bars(list, numbers),
          barCategoryGap: "15%",
          barMinWidth: 2,
          barMaxWidth: 22,
          emphasis: { disabled: true },
          label: { show: true, position: "right", color: Cadis.colors().ink, fontSize: 12, formatter },
          labelLayout: { hideOverlap: true },
        },
      ],
    };
  };
})(window.Cadis);
