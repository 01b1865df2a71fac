/* The verdict with its explanation; and, below the first chart, tables, notes and downloads. */
(function (Cadis) {
  "use strict";

  const make = Cadis.make;
  let heading, sentence, details, tables, notes, downloads;

  /** Offer a file as a download. */
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
    // browsers limit the length of data: links; large files need a blob
    if (address.length < 100000) return make("a", { class: "button", href: address, download: file.name }, file.name);
    return make("button", { type: "button", onclick: () => save(file) }, file.name);
  }

  function build(root) {
    heading = document.getElementById("verdict-title");
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

  /** Return the heading, which says how the numbers of the verdict are computed. */
  function title() {
    const part = Cadis.data.accuracy;
    if (!part) return "Result";
    const metric = part.metrics[part.metric] ?? "accuracy";
    const rounds = Cadis.largest(part.runs.map((run) => run.all.length));
    return `Result (${metric}: mean of ${rounds > 10 ? `the ${part.ranking}` : "all rounds"})`;
  }

  function update(part) {
    heading.textContent = title();
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

  Cadis.section({ id: "verdict", name: "Result", title: "Result", build, update });
  Cadis.section({
    id: "tables",
    name: "Tables",
    title: "Tables",
    of: "verdict",
    build: buildTables,
    update: updateTables,
  });
})(window.Cadis);
