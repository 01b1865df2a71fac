/* Helpers of all sections: elements, numbers as text, tables, controls. */
window.Cadis = window.Cadis || {};
(function (Cadis) {
  "use strict";

  Cadis.data = null;
  Cadis.sections = {};
  Cadis.ready = false;

  /**
   * Register a section: {id, name, title, lead, dataKey, build(root), update(sectionData), empty(sectionData)}.
   * The name is its entry in the navigation; dataKey is the key of its data, by default its id.
   */
  Cadis.section = function (section) {
    Cadis.sections[section.id] = section;
  };

  /** Return an element. Children are elements or strings, which are inserted as text, not as HTML. */
  Cadis.make = function (tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else if (value === true) element.setAttribute(key, "");
      else if (value !== false && value != null) element.setAttribute(key, value);
    }
    element.append(...children.filter((child) => child != null));
    return element;
  };
  const make = Cadis.make;

  /** Replace the children of an element if its content has changed; otherwise keep focus and scroll position. */
  Cadis.fill = function (element, content, children) {
    const key = JSON.stringify(content);
    if (element.shown === key) return;
    element.shown = key;
    element.replaceChildren(...children());
  };

  /** Return a number as text; a dash if it is unknown. */
  Cadis.number = function (value, digits = 3) {
    if (value == null || Number.isNaN(value)) return "–";
    return Number(value).toFixed(digits);
  };

  /** Return a number with three significant digits, for seconds. */
  Cadis.short = function (value) {
    if (value == null || Number.isNaN(value)) return "–";
    if (value !== 0 && Math.abs(value) < 0.001) return Number(value).toExponential(1);
    return String(Number(Number(value).toPrecision(3)));
  };

  /** Cut a long name in the middle, because the ends of names often differ. */
  Cadis.clip = function (name, letters = 20) {
    const text = String(name);
    if (text.length <= letters) return text;
    const tail = Math.floor(letters * 0.4);
    return `${text.slice(0, letters - tail - 1)}…${text.slice(-tail)}`;
  };

  Cadis.plural = (count, word, words = `${word}s`) => `${count} ${count === 1 ? word : words}`;

  Cadis.method = function (index) {
    const { colour, ...rest } = Cadis.data.methods[index] || { name: `method ${index}`, colour: "#777777" };
    return { ...rest, color: colour };
  };

  /** Group runs by method: [[method index, runs], ...] in the order of the methods. */
  Cadis.byMethod = function (runs) {
    const groups = new Map();
    for (const run of runs) {
      if (!groups.has(run.method)) groups.set(run.method, []);
      groups.get(run.method).push(run);
    }
    return [...groups].sort((a, b) => a[0] - b[0]);
  };

  /**
   * Return a table that scrolls in its own box. The first column names the rows; numbers are aligned right.
   * The note below the caption explains the columns.
   */
  Cadis.table = function ({ caption, note = "", columns, rows, best = [], isText = false }) {
    const bold = new Set(best.map(([row, column]) => `${row}/${column}`));
    const cell = (text, row, column) => {
      const content = bold.has(`${row}/${column}`) ? make("strong", {}, String(text)) : String(text);
      return column === 0 ? make("th", { scope: "row" }, content) : make("td", {}, content);
    };
    const head = columns.map((name) =>
      make("th", { scope: "col", class: String(name).length > 20 ? "long" : null }, String(name)),
    );
    const body = rows.map((row, r) => make("tr", {}, ...row.map((text, c) => cell(text ?? "–", r, c))));
    const table = make(
      "table",
      { class: isText ? "text" : null },
      make(
        "caption",
        {},
        make("span", {}, caption),
        note ? make("span", { class: "note" }, note) : null,
      ),
      make("thead", {}, make("tr", {}, ...head)),
      make("tbody", {}, ...body),
    );
    return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table);
  };

  /** Return a <details> whose table is made when it is opened or when the data change. */
  Cadis.details = function (summary, table) {
    const box = make("div");
    const element = make("details", {}, make("summary", {}, summary), box);
    const show = () => {
      if (!element.open) return;
      const content = table();
      Cadis.fill(box, content, () => [Cadis.table(content)]);
    };
    element.addEventListener("toggle", show);
    element.refresh = show;
    return element;
  };

  /** Return a labeled <select>; set(options) keeps the selected value if it still exists. */
  Cadis.select = function (id, label, changed) {
    const list = make("select", { id, onchange: changed });
    const element = make("label", { class: "control" }, `${label} `, list);
    element.list = list;
    element.set = function (options) {
      const before = list.value;
      Cadis.fill(list, options, () => options.map(([value, text]) => make("option", { value }, text)));
      if (options.some(([value]) => value === before)) list.value = before;
      element.hidden = options.length < 2;
    };
    return element;
  };

  /** Return radio buttons in a fieldset; choices are [id, value, text]. */
  Cadis.radios = function (name, label, choices, changed) {
    const buttons = choices.map(([id, value, text], position) =>
      make(
        "label",
        {},
        make("input", { type: "radio", id, name, value, checked: position === 0, onchange: changed }),
        ` ${text}`,
      ),
    );
    const element = make("fieldset", { class: "control" }, make("legend", {}, label), ...buttons);
    element.chosen = () => element.querySelector("input:checked").value;
    return element;
  };

  /** Return a figure with a caption below its content. */
  Cadis.figure = function (caption, ...content) {
    const text = make("figcaption", {}, ...(caption ? [caption] : []));
    const element = make("figure", {}, ...content, text);
    element.caption = text;
    return element;
  };
})(window.Cadis);
