/* Light and dark theme, colors, and common options of all charts. */
(function (Cadis) {
  "use strict";

  // the same colors as in the figures: get_cluster_color in style.py
  const CLUSTERS = [
    ...["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"],
    ...["#8E63C7", "#9A5B33", "#4C9A2A", "#CC6677", "#6699CC", "#888888"],
  ];
  const VIRIDIS = [
    "#440154",
    "#482878",
    "#3e4a89",
    "#31688e",
    "#26828e",
    "#1f9e89",
    "#35b779",
    "#6ece58",
    "#b5de2b",
    "#fde725",
  ];
  const KEY = "cadis-theme";
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  let colors = {};

  function read() {
    const style = getComputedStyle(document.documentElement);
    const names = ["ink", "muted", "line", "surface", "unknown", "low", "high", "font"];
    colors = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }

  function readChoice() {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // without storage, the choice lasts until the page is closed
    }
  }

  function choose(theme) {
    document.documentElement.dataset.theme = theme;
    read();
    Cadis.redraw?.();
  }

  /** Redraw all charts for paper, light and narrow, and afterwards for the screen. */
  function printing(on) {
    document.documentElement.classList.toggle("printing", on);
    document.documentElement.dataset.theme = on ? "light" : document.getElementById("theme").value;
    read();
    Cadis.redraw(on);
  }

  Cadis.startTheme = function () {
    const list = document.getElementById("theme");
    const before = readChoice();
    if (["auto", "light", "dark"].includes(before)) list.value = before;
    list.addEventListener("change", () => {
      try {
        localStorage.setItem(KEY, list.value);
      } catch {
        // no storage
      }
      choose(list.value);
    });
    addEventListener("beforeprint", () => printing(true));
    addEventListener("afterprint", () => printing(false));
    dark.addEventListener("change", () => choose(list.value));
    choose(list.value);
  };

  /** Return the colors of the theme: ink, muted, line, surface, unknown, low, high. */
  Cadis.colors = () => colors;

  /** Return the color of data; black becomes the text color of the theme. */
  Cadis.color = (color) => (/^#0{3}(0{3})?$/.test(color) ? colors.ink : color);

  Cadis.clusterColor = (cluster) =>
    cluster == null || cluster < 0 ? colors.unknown : CLUSTERS[cluster % CLUSTERS.length];

  const channels = (color) => [1, 3, 5].map((start) => parseInt(color.slice(start, start + 2), 16));
  Cadis.channels = channels;

  /** Interpolate between colors, from the first (0) to the last (1); return [red, green, blue]. */
  function interpolate(stops, fraction) {
    const stop = Math.max(0, Math.min(1, fraction)) * (stops.length - 1);
    const below = Math.min(Math.floor(stop), stops.length - 2);
    const [first, second] = [channels(stops[below]), channels(stops[below + 1])];
    return first.map((value, channel) => Math.round(value + (second[channel] - value) * (stop - below)));
  }

  /** Viridis for the bytes 0 to 254, which are similarities from 0 to 1. */
  Cadis.viridis = Array.from({ length: 255 }, (_, byte) => interpolate(VIRIDIS, byte / 254));

  /** Return a text color that is legible on a cell of a heat map; the fraction is its value from 0 to 1. */
  Cadis.inkOn = function (fraction) {
    const background = interpolate([colors.low, colors.high], fraction);
    const [red, green, blue] = background.map((value) => (value / 255) ** 2.2);
    const light = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    return light > 0.18 ? "#111417" : "#ffffff";
  };

  /** Return the common options of all charts. */
  Cadis.base = () => ({
    animation: false,
    textStyle: { fontFamily: colors.font, color: colors.ink },
    grid: { left: 8, right: 16, top: 16, bottom: 8, outerBoundsMode: "same", outerBoundsContain: "all" },
    tooltip: {
      confine: true,
      backgroundColor: colors.surface,
      borderColor: colors.line,
      textStyle: { color: colors.ink, fontSize: 13 },
      extraCssText: "max-width: min(22rem, 90vw); white-space: normal; overflow-wrap: anywhere;",
    },
  });

  /** Return an axis in the colors of the theme; `more` overrides options, its axisLabel is merged. */
  Cadis.axis = function (name, more = {}) {
    const { axisLabel, ...rest } = more;
    return {
      type: "value",
      name,
      nameLocation: "middle",
      nameGap: 28,
      nameTextStyle: { color: colors.muted, fontSize: 12 },
      axisLine: { show: false },
      axisTick: { show: false },
      axisLabel: { color: colors.muted, fontSize: 12, hideOverlap: true, ...axisLabel },
      splitLine: { lineStyle: { color: colors.line, width: 1 } },
      ...rest,
    };
  };

  /** Return an axis of names, each cut to a number of letters. */
  Cadis.names = (name, data, letters, { axisLabel, ...more } = {}) =>
    Cadis.axis(name, {
      type: "category",
      data,
      nameGap: 12,
      splitLine: { show: false },
      axisLabel: { formatter: (text) => Cadis.clip(text, letters), ...axisLabel },
      ...more,
    });

  Cadis.tooltip = (trigger, formatter, more = {}) => ({ ...Cadis.base().tooltip, trigger, formatter, ...more });

  /** Return the color scale of heat maps. */
  Cadis.scale = (min, max) => ({
    show: false,
    min,
    max: max > min ? max : min + 1e-9,
    dimension: 2,
    inRange: { color: [colors.low, colors.high] },
  });

  const encode = (text) => echarts.format.encodeHTML(String(text));

  /** Return the HTML of a tooltip: a title and rows [color or null, name, value]. All text is escaped here. */
  Cadis.tip = function (title, rows) {
    const dot = (color) =>
      color ? `<span class="dot" style="background:${encode(Cadis.color(color))}"></span>` : "";
    const lines = rows.map(
      ([color, name, value]) =>
        `<div class="tip"><span>${dot(color)}${encode(Cadis.clip(name, 40))}</span><b>${encode(value)}</b></div>`,
    );
    return `<div><strong>${encode(Cadis.clip(title, 60))}</strong>${lines.join("")}</div>`;
  };
})(window.Cadis);
