/* The answer: a sentence and what it rests on; below the chart the tables, notes, files to take away. */
(function (Cadis) {
  "use strict";

  const make = Cadis.make;
  let sentence, details, tables, notes, downloads;

  /** A file is made when it is asked for, and its address is given back at once. */
  function save({ name, type, content }) {
    const address = URL.createObjectURL(new Blob([content], { type: `${type};charset=utf-8` }));
    const link = make("a", { href: address, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }

  function download(file) {
    const address = `data:${file.type};charset=utf-8,${encodeURIComponent(file.content)}`;
    // browsers limit data: links; big files go through a blob
    if (address.length < 100000) return make("a", { class: "button", href: address, download: file.name }, file.name);
    return make("button", { type: "button", onclick: () => save(file) }, file.name);
  }

  function build(root) {
    sentence = make("p", { class: "sentence" });
    details = make("div", { class: "details" });
    root.append(sentence, details);
  }

  function buildTables(root) {
    tables = make("div", { class: "tables" });
    notes = make("ul", { class: "notes" });
    downloads = make("p", { class: "downloads" });
    root.append(tables, notes, downloads);
  }

  function update(part) {
    sentence.textContent = part.sentence;
    Cadis.fill(details, part.details, () => part.details.map((text) => make("p", {}, text)));
  }

  function updateTables(part) {
    Cadis.fill(tables, part.tables, () => part.tables.map(Cadis.table));
    Cadis.fill(notes, part.notes, () => part.notes.map((note) => make("li", {}, note)));
    Cadis.fill(downloads, part.downloads, () => ["Download: ", ...part.downloads.map(download)]);
    notes.hidden = !part.notes.length;
    downloads.hidden = !part.downloads.length;
  }

  Cadis.section({ id: "answer", name: "Answer", title: "The answer", build, update });
  Cadis.section({
    id: "tables",
    name: "Tables",
    title: "In numbers",
    of: "answer",
    build: buildTables,
    update: updateTables,
  });
})(window.Cadis);
