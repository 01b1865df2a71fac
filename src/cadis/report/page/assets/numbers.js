/* Statistics, smoothing. Unknown values are null and are left out. */
(function (Cadis) {
  "use strict";

  const known = (values) => values.filter((value) => value != null);
  Cadis.known = known;

  Cadis.largest = (values, least = -Infinity) => values.reduce((most, value) => Math.max(most, value), least);

  Cadis.mean = function (values) {
    const numbers = known(values);
    return numbers.length ? numbers.reduce((sum, value) => sum + value, 0) / numbers.length : null;
  };

  /** Standard deviation. Seeds are a sample of all seeds (missing: 1); clients are all there are (missing: 0). */
  Cadis.deviation = function (values, missing = 1) {
    const numbers = known(values);
    if (numbers.length <= missing) return numbers.length ? 0 : null;
    const middle = Cadis.mean(numbers);
    const squares = numbers.reduce((sum, value) => sum + (value - middle) ** 2, 0);
    return Math.sqrt(squares / (numbers.length - missing));
  };

  /** A quantile of sorted numbers, interpolated. */
  Cadis.quantile = function (sorted, share) {
    const place = (sorted.length - 1) * share;
    const below = Math.floor(place);
    const above = Math.min(below + 1, sorted.length - 1);
    return sorted[below] + (sorted[above] - sorted[below]) * (place - below);
  };

  /** Trailing moving average over `width` rounds; where nothing was measured, nothing is invented. */
  Cadis.smooth = function (values, width) {
    let sum = 0;
    let count = 0;
    const add = (value, sign) => {
      if (value == null) return;
      sum += sign * value;
      count += sign;
    };
    return values.map((value, position) => {
      add(value, 1);
      if (position >= width) add(values[position - width], -1);
      return value == null || !count ? null : sum / count;
    });
  };

  /** Several series as one: points [round, mean, deviation] wherever any of them has a value. */
  Cadis.summarise = function (series, rounds) {
    const points = [];
    rounds.forEach((round, position) => {
      const values = known(series.map((one) => one[position]));
      if (values.length) points.push([round, Cadis.mean(values), Cadis.deviation(values)]);
    });
    return points;
  };

  /** Values at rounds as a list for the given rounds, null where there is none. */
  Cadis.spread = function (rounds, values, wanted) {
    const at = new Map(rounds.map((round, position) => [round, values[position]]));
    return wanted.map((round) => at.get(round) ?? null);
  };

  /** Values of rounds that ended at `clock`, at other times: of the last round before; null beyond the last. */
  Cadis.atTimes = function (values, clock, times) {
    const end = clock[clock.length - 1];
    let position = -1;
    let last = null;
    return times.map((time) => {
      while (position + 1 < clock.length && clock[position + 1] <= time) {
        position += 1;
        last = values[position] ?? last;
      }
      return time <= end ? last : null;
    });
  };

  /** All rounds that any of the runs has, in order. */
  Cadis.union = function (lists) {
    return [...new Set(lists.flat())].sort((a, b) => a - b);
  };

  /** Few of many rounds for a table: about every tenth, and the last. */
  Cadis.thin = function (count) {
    const step = count <= 12 ? 1 : count <= 40 ? 5 : count <= 500 ? 10 : Math.ceil(count / 500) * 10;
    const kept = [];
    for (let round = step; round < count; round += step) kept.push(round);
    return [...kept, count];
  };

  /** A number from 0 to 1 that is always the same for the same input: jitter that does not dance. */
  Cadis.hash = function (number) {
    const wave = Math.sin(number * 12.9898) * 43758.5453;
    return wave - Math.floor(wave);
  };

  /** In numerical order if all are numbers, else as they came. */
  Cadis.ordered = function (texts) {
    const distinct = [...new Set(texts)];
    const numeric = distinct.every((text) => text.trim() !== "" && Number.isFinite(Number(text)));
    return numeric ? distinct.sort((a, b) => Number(a) - Number(b)) : distinct;
  };
})(window.Cadis);
