/* The page: order of sections, navigation, and polling while a run is being watched. */
(function (Cadis) {
  "use strict";

  const make = Cadis.make;
  const ORDER = [
    "verdict",
    "accuracy",
    "tables",
    "sweep",
    "federation",
    "clusters",
    "confusion",
    "fairness",
    "convergence",
    "time",
    "setup",
  ];
  const POLL_MILLISECONDS = 2000;
  const slots = new Map(); // section id -> {element, link, body, built}
  let lastText = null; // JSON of the data on the page

  /** Add a hidden section: a section that gets its data later keeps its position. */
  function addSection(section) {
    const heading = make("h2", { id: `${section.id}-title` }, section.title);
    const body = make("div", { class: "body" });
    const element = make(
      "section",
      { id: section.id, "aria-labelledby": heading.id, hidden: true },
      heading,
      section.lead ? make("p", { class: "lead" }, section.lead) : null,
      body,
    );
    const link = make("li", { hidden: true }, make("a", { href: `#${section.id}` }, section.name));
    document.getElementById("main").append(element);
    document.getElementById("sections").append(link);
    slots.set(section.id, { element, link, body, built: false });
    current.observe(element);
  }

  /** Highlights the link of the section on the screen. */
  const current = new IntersectionObserver(
    (seen) => {
      for (const { target, isIntersecting } of seen) {
        if (!isIntersecting) continue;
        for (const [id, { link }] of slots) {
          const anchor = link.firstChild;
          if (id === target.id) anchor.setAttribute("aria-current", "true");
          else anchor.removeAttribute("aria-current");
        }
        scrollTo(slots.get(target.id).link);
      }
    },
    { rootMargin: "-30% 0px -65% 0px" },
  );

  /** Scroll the navigation bar, but not the page, to a link. */
  function scrollTo(link) {
    const bar = link.closest(".links");
    if (bar.scrollWidth > bar.clientWidth) bar.scrollLeft = link.offsetLeft - bar.clientWidth / 2;
  }

  /** For a sweep, move its chart directly below the verdict, and the chart of accuracy below the tables. */
  function orderSections() {
    if (!Cadis.data.sweep) return;
    const [verdict, sweep, tables, accuracy] = ["verdict", "sweep", "tables", "accuracy"].map((id) => slots.get(id));
    for (const key of ["element", "link"]) {
      if (verdict[key].nextSibling === sweep[key]) return;
      verdict[key].after(sweep[key]);
      tables[key].after(accuracy[key]);
    }
  }

  function showSection(id) {
    const slot = slots.get(id);
    const section = Cadis.sections[id];
    const sectionData = Cadis.data[section.dataKey ?? id];
    const isEmpty = sectionData == null || Boolean(section.empty?.(sectionData));
    slot.element.hidden = slot.link.hidden = isEmpty;
    if (isEmpty) return;
    if (!slot.built) section.build(slot.body);
    slot.built = true;
    section.update(sectionData);
  }

  /** Show a section; an error in it must not affect the others. */
  function tryShowSection(id) {
    try {
      showSection(id);
    } catch (error) {
      console.error(`section ${id}:`, error);
    }
  }

  function show(data) {
    Cadis.data = data;
    document.title = `${data.title} – cadis`;
    document.getElementById("title").textContent = data.title;
    document.getElementById("created").textContent = `cadis report, created ${data.created}`;
    setStatus(describeProgress(data));
    orderSections();
    ORDER.forEach(tryShowSection);
    if (Cadis.ready) return;
    // observers run after the next frame; then all charts on the screen are drawn
    requestAnimationFrame(() =>
      requestAnimationFrame(() => {
        Cadis.ready = true;
        if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
      }),
    );
  }

  function setStatus(text) {
    const line = document.getElementById("status");
    if (line.textContent !== text) line.textContent = text;
    line.hidden = !text;
  }

  function describeProgress({ live }) {
    if (!live) return "";
    const note = live.note ? ` (${live.note})` : "";
    if (live.state === "damaged") return `${live.note} Reading it again.`;
    if (live.state === "ended") return "Ended.";
    if (!live.done) return `Waiting for the first round${note}.`;
    if (live.state === "idle") return `Not running; finished rounds: ${live.done} of ${live.total}${note}.`;
    if (Cadis.data.kind === "run") return `Running: round ${live.done} of ${live.total}${note}`;
    return `Running: ${live.done} of ${live.total} rounds of all runs are finished${note}`;
  }

  async function poll() {
    try {
      const response = await fetch("data.json", { cache: "no-cache" });
      if (!response.ok) throw new Error(`the server returned status ${response.status}`);
      const text = await response.text();
      const data = text === lastText ? Cadis.data : JSON.parse(text);
      if (text !== lastText) show(data);
      else setStatus(describeProgress(data));
      lastText = text;
      if (data.live?.state === "ended") return; // the server stops when the run ends
    } catch (error) {
      setStatus(`Connection lost: ${error.message}. Trying again.`);
    }
    setTimeout(poll, POLL_MILLISECONDS);
  }

  function start() {
    Cadis.startTheme();
    for (const id of ORDER) addSection(Cadis.sections[id]);
    const embedded = document.getElementById("data");
    if (embedded) show(JSON.parse(embedded.textContent));
    else {
      setStatus("Waiting for the first round.");
      poll();
    }
  }

  start();
})(window.Cadis);
