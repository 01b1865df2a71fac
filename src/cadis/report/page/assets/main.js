/* The page: sections in order, navigation, and new data while an experiment runs. */
(function (Cadis) {
  "use strict";

  const make = Cadis.make;
  const ORDER = [
    "answer",
    "accuracy",
    "tables",
    "sweep",
    "federation",
    "grouping",
    "confusion",
    "fairness",
    "convergence",
    "time",
    "setup",
  ];
  const PERIOD = 2000; // milliseconds between looks for new data
  const places = new Map(); // section id -> {element, link}
  let before = null; // the text last shown

  /** All sections are placed at once and hidden: one that gets its first data later appears in its place. */
  function place(section) {
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
    places.set(section.id, { element, link, body, built: false });
    current.observe(element);
  }

  /** The navigation tells which section is on the screen. */
  const current = new IntersectionObserver(
    (seen) => {
      for (const { target, isIntersecting } of seen) {
        if (!isIntersecting) continue;
        for (const [id, { link }] of places) {
          const anchor = link.firstChild;
          if (id === target.id) anchor.setAttribute("aria-current", "true");
          else anchor.removeAttribute("aria-current");
        }
        reveal(places.get(target.id).link);
      }
    },
    { rootMargin: "-30% 0px -65% 0px" },
  );

  /** Scroll the bar, and only the bar, to a link. */
  function reveal(link) {
    const bar = link.closest(".links");
    if (bar.scrollWidth > bar.clientWidth) bar.scrollLeft = link.offsetLeft - bar.clientWidth / 2;
  }

  /** Who wins, and the one chart that shows it: of a sweep, accuracy over its parameters. */
  function arrange() {
    if (!Cadis.data.sweep) return;
    const [answer, sweep, tables, accuracy] = ["answer", "sweep", "tables", "accuracy"].map((id) => places.get(id));
    for (const part of ["element", "link"]) {
      if (answer[part].nextSibling === sweep[part]) return;
      answer[part].after(sweep[part]);
      tables[part].after(accuracy[part]);
    }
  }

  function showSection(id) {
    const { element, link, body } = places.get(id);
    const part = Cadis.data[Cadis.sections[id].of ?? id];
    const nothing = part == null || Boolean(Cadis.sections[id].empty?.(part));
    element.hidden = link.hidden = nothing;
    if (nothing) return;
    const spot = places.get(id);
    if (!spot.built) Cadis.sections[id].build(body);
    spot.built = true;
    Cadis.sections[id].update(part);
  }

  /** One section that fails must not take the others with it. */
  function attempt(id) {
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
    document.getElementById("created").textContent = `cadis report, ${data.created}`;
    tell(progress(data));
    arrange();
    ORDER.forEach(attempt);
    if (Cadis.ready) return;
    // the observers report after the next frame; then what is on the screen has been drawn
    requestAnimationFrame(() =>
      requestAnimationFrame(() => {
        Cadis.ready = true;
        if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
      }),
    );
  }

  function tell(text) {
    const line = document.getElementById("status");
    if (line.textContent !== text) line.textContent = text;
    line.hidden = !text;
  }

  function progress({ live }) {
    if (!live) return "";
    const note = live.note ? ` (${live.note})` : "";
    if (live.state === "damaged") return `${live.note} Looking again.`;
    if (live.state === "ended") return "Ended.";
    if (!live.done) return `Waiting for the first round${note}.`;
    if (live.state === "idle") return `Idle at round ${live.done} of ${live.total}${note}.`;
    const all = Cadis.data.kind === "run" ? "" : " in all";
    return `Running: round ${live.done} of ${live.total}${all}${note}`;
  }

  async function look() {
    try {
      const answer = await fetch("data.json", { cache: "no-cache" });
      if (!answer.ok) throw new Error(`the server says ${answer.status}`);
      const text = await answer.text();
      const data = text === before ? Cadis.data : JSON.parse(text);
      if (text !== before) show(data);
      else tell(progress(data));
      before = text;
      if (data.live?.state === "ended") return; // the server ends with what it shows
    } catch (error) {
      tell(`Connection lost: ${error.message}. Trying again.`);
    }
    setTimeout(look, PERIOD);
  }

  function start() {
    Cadis.startTheme();
    for (const id of ORDER) place(Cadis.sections[id]);
    const embedded = document.getElementById("data");
    if (embedded) show(JSON.parse(embedded.textContent));
    else {
      tell("Waiting for the first round.");
      look();
    }
  }

  start();
})(window.Cadis);
