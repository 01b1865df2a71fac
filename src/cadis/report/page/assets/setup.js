/* How to repeat it: command, options, versions. */
(function (Cadis) {
  "use strict";

  const make = Cadis.make;
  let code, button, tables;

  /** Without a secure context (a file, plain http) there is no clipboard: select, and copy the old way. */
  async function copy() {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = document.execCommand("copy") ? "Copied" : "Selected: press Ctrl+C";
    }
    setTimeout(() => {
      button.textContent = "Copy";
    }, 2000);
  }

  const pairs = (caption, rows) => Cadis.table({ caption, columns: ["option", "value"], rows });

  function content(part) {
    const methods = part.methods
      .filter(({ options }) => options.length)
      .map(({ method, options }) => pairs(`Options of ${Cadis.method(method).name}`, options));
    const versions = Cadis.table({ caption: "Versions", columns: ["software", "version"], rows: part.versions });
    return [
      ...(part.options.length ? [pairs("Options", part.options)] : []),
      make("div", {}, ...methods, ...(part.versions.length ? [versions] : [])),
    ];
  }

  function build(root) {
    code = make("code");
    button = make("button", { type: "button", onclick: copy, "aria-live": "polite" }, "Copy");
    tables = make("div", { class: "columns" });
    const box = make("pre", { tabindex: "0", role: "region", "aria-label": "Command" }, code);
    root.append(make("div", { class: "command" }, box, button), tables);
  }

  function update(part) {
    code.textContent = part.command;
    code.closest(".command").hidden = !part.command;
    Cadis.fill(tables, [part, Cadis.data.methods.map(({ name }) => name)], () => content(part));
  }

  Cadis.section({
    id: "setup",
    name: "Setup",
    title: "How to repeat it",
    build,
    update,
    lead: "The same command with the same versions gives the same numbers, but for the times.",
  });
})(window.Cadis);
