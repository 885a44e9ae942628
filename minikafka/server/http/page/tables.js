// Tables, whose rows are changed in place: what is selected or focused stays so while the page looks again.

const bad = (value, isBad = true) => ({ value, isBad });

/** A table in a region that scrolls, with its note. Columns: texts, which are of numbers when in [brackets]. */
function table(id, label, columns, { level = "h3" } = {}) {
  const heads = columns.map((each) =>
    make("th", { scope: "col", className: Array.isArray(each) ? "number" : "" }, String(each)),
  );
  const heading = level ? make(level, { id: `h-${id}` }, label) : null;
  const region = make(
    "div",
    { className: "scroll", role: "region", ariaLabel: label, tabIndex: 0 },
    make("table", { ariaLabel: label }, make("thead", {}, make("tr", {}, ...heads)), make("tbody", { id })),
  );
  const note = make("p", { id: `${id}-note`, className: "note" });
  return [heading, region, note].filter((each) => each !== null);
}

function link(cell, text, href) {
  const anchor = cell.querySelector("a") ?? document.createElement("a");
  put(anchor, text);
  if (anchor.href !== href) anchor.href = href;
  if (anchor.parentElement !== cell) cell.replaceChildren(anchor);
}

/** What a cell shows: a value, or an object of one and how it is shown. */
function fillCell(cell, told) {
  const {
    value,
    href,
    press,
    label = "",
    spark,
    progress,
  } = told !== null && typeof told === "object" ? told : { value: told };
  const text = value === null || value === undefined ? "" : String(value);
  if (press) {
    const pressed = cell.querySelector("button") ?? button("", null);
    put(pressed, text);
    pressed.onclick = press;
    pressed.ariaLabel = label || null;
    if (pressed.parentElement !== cell) cell.replaceChildren(pressed);
  } else if (spark) {
    const drawn = cell.querySelector("svg") ?? line("spark");
    drawLine(drawn, spark, label);
    if (drawn.parentElement !== cell) cell.replaceChildren(drawn);
  } else if (progress !== undefined) {
    const bar = cell.querySelector("progress") ?? document.createElement("progress");
    bar.value = progress;
    bar.ariaLabel = label;
    if (bar.parentElement !== cell) cell.replaceChildren(bar, " ", make("span"));
    put(bar.nextElementSibling, text);
  } else if (href) link(cell, text, href);
  else if (cell.firstElementChild) cell.replaceChildren(text);
  else put(cell, text);
}

/** Make the rows of a table body these, and keep those that are there: [heading, ...cells]. */
function fill(id, rows) {
  const body = get(id);
  const columns = body.parentElement.tHead.rows[0].cells;
  if (!rows.length) rows = [["none"]];
  while (body.rows.length > rows.length) body.lastChild.remove();
  rows.forEach((cells, index) => {
    let row = body.rows[index];
    if (!row || row.cells.length !== cells.length) {
      const made = document.createElement("tr");
      cells.forEach((_, column) => {
        const cell = made.appendChild(document.createElement(column ? "td" : "th"));
        if (!column) cell.scope = "row";
      });
      if (row) row.replaceWith(made);
      else body.append(made);
      row = made;
    }
    cells.forEach((told, column) => {
      const cell = row.cells[column];
      fillCell(cell, told);
      cell.className = ((columns[column]?.className ?? "") + (told?.isBad ? " bad" : "")).trim();
    });
  });
}

/** What is below a table: how many more there are, and a sentence. */
function more(id, leftOut, sentence = "") {
  const hidden = leftOut ? `And ${leftOut} more, which are not shown. ` : "";
  put(get(`${id}-note`), (hidden + sentence).trim());
}

/** Cards at the top of a view: pairs of a name and what a cell may show. */
function fillCards(element, facts) {
  while (element.children.length > facts.length) element.lastChild.remove();
  facts.forEach(([name, fact], index) => {
    const card =
      element.children[index] ??
      element.appendChild(make("div", {}, make("dt"), make("dd"), make("div", { className: "below" })));
    const {
      value,
      isBad = false,
      spark,
      label,
    } = fact !== null && typeof fact === "object" ? fact : { value: fact };
    put(card.children[0], name);
    put(card.children[1], value === null || value === undefined ? "" : String(value));
    card.children[1].className = isBad ? "bad" : "";
    if (spark) fillCell(card.children[2], { spark, label });
  });
}
