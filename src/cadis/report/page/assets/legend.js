/* Legends of checkboxes: those of ECharts cannot be used by keyboard, and overlap charts on small screens. */
(function (Cadis) {
  "use strict";

  const make = Cadis.make;

  const DASHES = { solid: "", dashed: "6 4", dotted: "2 3" };

  function swatch({ color, dash, box }) {
    const space = "http://www.w3.org/2000/svg";
    const drawing = document.createElementNS(space, "svg");
    const shape = document.createElementNS(space, box ? "rect" : "line");
    const size = box
      ? { x: 6, y: 1, width: 12, height: 12, rx: 2, fill: color }
      : { x1: 0, x2: 26, y1: 7, y2: 7, stroke: color };
    for (const [key, value] of Object.entries(size)) shape.setAttribute(key, value);
    if (!box) shape.setAttribute("stroke-width", "3");
    if (!box && DASHES[dash]) shape.setAttribute("stroke-dasharray", DASHES[dash]);
    // black means the text color of the theme, which the style sheet sets
    if (/^#0{3}(0{3})?$/.test(color)) shape.setAttribute("class", "inked");
    drawing.setAttribute("aria-hidden", "true");
    drawing.setAttribute("width", box ? "24" : "26");
    drawing.setAttribute("height", "14");
    drawing.append(shape);
    return drawing;
  }

  class Legend {
    constructor(container, label) {
      this.container = container;
      this.label = label;
      this.element = make("fieldset", { class: "legend" });
      this.hidden = new Set();
      this.names = [];
    }

    mark(name, shown) {
      if (shown) this.hidden.delete(name);
      else this.hidden.add(name);
    }

    toggle(name, shown) {
      this.mark(name, shown);
      this.container.entry.chart?.dispatchAction({ type: shown ? "legendSelect" : "legendUnSelect", name });
    }

    button(item) {
      const onchange = (event) => this.toggle(item.name, event.target.checked);
      const checked = this.shows(item.name);
      const box = make("input", { type: "checkbox", checked, value: item.name, onchange });
      return make("label", {}, box, swatch(item), make("span", { title: item.name }, Cadis.clip(item.name, 32)));
    }

    /** Set the entries: [{name, color, dash, box}]. */
    set(items) {
      this.names = items.map((item) => item.name);
      this.element.hidden = items.length < 2;
      const children = () => [make("legend", {}, this.label), ...items.map((item) => this.button(item))];
      Cadis.fill(this.element, items, children);
    }

    /** Update the checkboxes from the selection of ECharts: {name: boolean}. */
    sync(selected) {
      for (const box of this.element.querySelectorAll("input")) {
        box.checked = selected[box.value] !== false;
        this.mark(box.value, box.checked);
      }
    }

    shows(name) {
      return !this.hidden.has(name);
    }

    /** Return the options of the hidden legend of ECharts, which filters the series. */
    option() {
      const selected = Object.fromEntries(this.names.map((name) => [name, this.shows(name)]));
      return { show: false, data: this.names, selected };
    }
  }

  /** Return the legend of a chart; the caller adds its element to the page. */
  Cadis.legend = function (container, label) {
    const legend = new Legend(container, label);
    container.entry.legend = legend;
    return legend;
  };
})(window.Cadis);
