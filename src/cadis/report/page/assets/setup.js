/* Command, options and software versions. */
(function (Cadis) {
  "use strict";

  const make = Cadis.make;
  let code, button, tables;

  /** Copy the command; without clipboard access (file:, http:), select it and use execCommand. */
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

  const pairs = (caption, rows) => Cadis.table({ caption, columns: ["option", "value"], rows, isText: true });

  function content(sectionData) {
    const methods = sectionData.methods
      .filter(({ options }) => options.length)
      .map(({ method, options }) => pairs(`Options of ${Cadis.method(method).name}`, options));
    const columns = ["software", "version"];
    const versions = Cadis.table({ caption: "Software versions", columns, rows: sectionData.versions, isText: true });
    return [
      ...(sectionData.options.length ? [pairs("Options that are the same for all methods", sectionData.options)] : []),
      make("div", {}, ...methods, ...(sectionData.versions.length ? [versions] : [])),
    ];
  }

  function build(root) {
    code = make("code");
    button = make("button", { type: "button", onclick: copy, "aria-live": "polite" }, "Copy");
    tables = make("div", { class: "columns" });
    const box = make("pre", { tabindex: "0", role: "region", "aria-label": "Command" }, code);
    root.append(make("div", { class: "command" }, box, button), tables);
  }

  function update(sectionData) {
    code.textContent = sectionData.command;
    code.closest(".command").hidden = !sectionData.command;
    Cadis.fill(tables, [sectionData, Cadis.data.methods.map(({ name }) => name)], () => content(sectionData));
  }

  Cadis.section({
    id: "setup",
    name: "Setup",
    title: "How to reproduce these results",
    build,
    update,
    lead: "The same command with the same software versions gives the same results, except for computing times.",
  });
})(window.Cadis);
