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
    const accuracy = Cadis.data.accuracy;
    if (!accuracy) return "Verdict";
    const metric = accuracy.metrics[accuracy.metric] ?? "accuracy";
    const rounds = Cadis.largest(accuracy.runs.map((run) => run.all.length));
    return `Verdict (${metric}: mean of ${rounds > 10 ? `the ${accuracy.ranking}` : "all rounds"})`;
  }

  function update(sectionData) {
    heading.textContent = title();
    sentence.textContent = sectionData.sentence;
    Cadis.fill(details, sectionData.details, () => sectionData.details.map((text) => make("p", {}, text)));
  }

  function updateTables(sectionData) {
    Cadis.fill(tables, sectionData.tables, () => sectionData.tables.map(Cadis.table));
    Cadis.fill(notes, sectionData.notes, () => sectionData.notes.map((note) => make("li", {}, note)));
    Cadis.fill(downloads, sectionData.downloads, () => ["Download: ", ...sectionData.downloads.map(download)]);
    notes.hidden = !sectionData.notes.length;
    downloads.hidden = !sectionData.downloads.length;
  }

  Cadis.section({ id: "verdict", name: "Verdict", title: "Verdict", build, update });
  Cadis.section({
    id: "tables",
    name: "Tables",
    title: "Tables",
    dataKey: "verdict",
    build: buildTables,
    update: updateTables,
  });
})(window.Cadis);
