"use strict";
(() => {
  const tip = document.getElementById("tip");
  const data = JSON.parse(document.getElementById("data").textContent);

  function place(x, y) {
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 14 + box.width > innerWidth ? x - 14 - box.width : x + 14;
    tip.style.left = Math.max(4, Math.min(left, innerWidth - box.width - 4)) + "px";
    tip.style.top = Math.max(4, Math.min(y + 14, innerHeight - box.height - 4)) + "px";
  }
  const hide = () => { tip.hidden = true; };

  /* One behavior for all figures: the pointer or the arrow keys choose an item, `show` puts it into the tip and returns where it is. */
  function readable(svg, length, show, itemAt, clear) {
    let at = 0;
    const go = (index, event) => {
      at = Math.max(0, Math.min(length - 1, index));
      const where = show(at);
      if (event) place(event.clientX, event.clientY);
      else place(where.left + where.width / 2, where.top + where.height / 2);
    };
    const stop = () => { hide(); clear(); };
    svg.addEventListener("pointermove", (event) => {
      const index = itemAt(event);
      if (index < 0) stop(); else go(index, event);
    });
    svg.addEventListener("pointerleave", stop);
    svg.addEventListener("blur", stop);
    svg.addEventListener("focus", () => { if (svg.matches(":focus-visible")) go(at); });
    svg.addEventListener("keydown", (event) => {
      const page = Math.max(1, Math.round(length / 20));
      const to = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - page, PageDown: at + page, Home: 0, End: length - 1 }[event.key];
      if (event.key === "Escape") stop();
      if (to === undefined) return;
      event.preventDefault();
      go(to);
    });
  }

  for (const svg of document.querySelectorAll("svg.marks")) {
    const marks = [...svg.querySelectorAll("[data-tip]")];
    const clear = () => marks.forEach((mark) => mark.classList.remove("at"));
    const show = (index) => {
      clear();
      marks[index].classList.add("at");
      tip.textContent = marks[index].dataset.tip;
      return marks[index].getBoundingClientRect();
    };
    readable(svg, marks.length, show, (event) => marks.indexOf(event.target.closest("[data-tip]")), clear);
  }

  function cell(row, text, style) {
    const made = row.insertCell();
    made.textContent = text;
    if (style) made.className = style;
    return made;
  }

  function columns(svg, series) {
    const cursor = svg.querySelector(".cursor");
    const ends = [];
    series.steps.reduce((sum, steps) => (ends.push(sum + steps), sum + steps), 0);
    const total = ends[ends.length - 1];
    const grouped = (n) => n.toLocaleString("en-US");
    const amount = (value) => value + " " + series.unit;

    function show(index) {
      const first = ends[index] - series.steps[index];
      const middle = (first + ends[index]) / 2 / total;
      const steps = series.steps[index] === 1 ? `${series.shown} ${grouped(first)}` : `${series.shown}s ${grouped(first)} to ${grouped(ends[index] - 1)}`;
      const table = document.createElement("table");
      cell(table.insertRow(), `${steps} of ${grouped(total)}, ${series.start_s[index]} s after the first`).colSpan = 2;
      const median = table.insertRow();
      cell(median, `median (${series.min[index]} to ${series.max[index]})`);
      cell(median, amount(series.median[index]));
      for (const stage of series.stages) {
        if (!stage.mean[index]) continue;
        const row = table.insertRow();
        const swatch = document.createElement("i");
        swatch.className = "swatch " + stage.class;
        cell(row, stage.name).prepend(swatch);
        cell(row, amount(stage.mean[index]));
      }
      tip.replaceChildren(table);
      for (const end of ["x1", "x2"]) cursor.setAttribute(end, 100 * middle + "%");
      cursor.setAttribute("visibility", "visible");
      return cursor.getBoundingClientRect();
    }
    const itemAt = (event) => {
      const box = svg.getBoundingClientRect();
      const step = ((event.clientX - box.left) / box.width) * total;
      return step < 0 || step >= total ? -1 : ends.findIndex((end) => step < end);
    };
    readable(svg, ends.length, show, itemAt, () => cursor.setAttribute("visibility", "hidden"));
  }
  for (const svg of document.querySelectorAll("svg.columns")) columns(svg, data.series);

  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((it) => { it.open = true; }));
})();
