/* Statistics and smoothing. Unknown values are null and are ignored. */
(function (Cadis) {
  "use strict";

  const known = (values) => values.filter((value) => value != null);
  Cadis.known = known;

  Cadis.largest = (values, minimum = -Infinity) => values.reduce((max, value) => Math.max(max, value), minimum);

  Cadis.mean = function (values) {
    const numbers = known(values);
    return numbers.length ? numbers.reduce((sum, value) => sum + value, 0) / numbers.length : null;
  };

  /** Return the standard deviation, the root of sum of squares / (n - ddof): ddof is 1 for seeds, 0 for all clients. */
  Cadis.deviation = function (values, ddof = 1) {
    const numbers = known(values);
    if (numbers.length <= ddof) return numbers.length ? 0 : null;
    const middle = Cadis.mean(numbers);
    const squares = numbers.reduce((sum, value) => sum + (value - middle) ** 2, 0);
    return Math.sqrt(squares / (numbers.length - ddof));
  };

  /** Return a quantile of sorted numbers, interpolated; fraction 0.5 is the median. */
  Cadis.quantile = function (sorted, fraction) {
    const index = (sorted.length - 1) * fraction;
    const below = Math.floor(index);
    const above = Math.min(below + 1, sorted.length - 1);
    return sorted[below] + (sorted[above] - sorted[below]) * (index - below);
  };

  /** Return the trailing moving average over `width` rounds; null stays null. */
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

  /** Return [round, mean, deviation] over several lists of values by round, for rounds in which any has a value. */
  Cadis.summarize = function (series, rounds) {
    const points = [];
    rounds.forEach((round, position) => {
      const values = known(series.map((values) => values[position]));
      if (values.length) points.push([round, Cadis.mean(values), Cadis.deviation(values)]);
    });
    return points;
  };

  /** Return the value of each wanted round, null if there is none; `values` belong to `rounds`. */
  Cadis.valuesAt = function (wanted, rounds, values) {
    const byRound = new Map(rounds.map((round, position) => [round, values[position]]));
    return wanted.map((round) => byRound.get(round) ?? null);
  };

  /** Return the value of the last round that has ended at each time; `clock` has the ends of the rounds. */
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

  /** Return the rounds that occur in any of several lists, sorted. */
  Cadis.union = function (lists) {
    return [...new Set(lists.flat())].sort((a, b) => a - b);
  };

  /** Return some of the numbers from 1 to `count`, for the rows of a table: for example each tenth, and the last. */
  Cadis.thin = function (count) {
    const step = count <= 12 ? 1 : count <= 40 ? 5 : count <= 500 ? 10 : Math.ceil(count / 500) * 10;
    const kept = [];
    for (let number = step; number < count; number += step) kept.push(number);
    return [...kept, count];
  };

  /** Return a pseudo-random number from 0 to 1 that depends on the input only, for stable jitter. */
  Cadis.hash = function (number) {
    const wave = Math.sin(number * 12.9898) * 43758.5453;
    return wave - Math.floor(wave);
  };

  /** Return distinct texts, sorted if all are numbers. */
  Cadis.ordered = function (texts) {
    const distinct = [...new Set(texts)];
    const numeric = distinct.every((text) => text.trim() !== "" && Number.isFinite(Number(text)));
    return numeric ? distinct.sort((a, b) => Number(a) - Number(b)) : distinct;
  };
})(window.Cadis);
