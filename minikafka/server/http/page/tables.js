// Tables, whose rows are changed in place: what is selected or focused stays so while the page looks again.

const bad = (value, isBad = true) => ({ value, isBad });

/** A cell that is sorted by something else than what it shows; null is last either way. */
const by = (sort, shown) =>
  shown !== null && typeof shown === "object" ? { ...shown, sort } : { value: shown, sort };

/** Columns of buttons and drawings, which have no order. */
const UNSORTED = /^(Why\?|Cancel|Bytes in)$/;

/** How tables are sorted now: {column, isDescending} by their ids. None: as the server has them. */
const orders = new Map();
const toldRows = new WeakMap(); // of bodies that the page sorts: as the server has them

/**
 * A table in a region that scrolls, with its note. Columns: texts, which are of numbers when in [brackets].
 * Sorted: undefined, its rows stay as they come; true, the page sorts them; else a function that has the server
 * sort them, and is called when another order is chosen.
 */
function table(id, label, columns, { level = "h3", sorted } = {}) {
  const heads = columns.map((each, index) => {
    const isNumber = Array.isArray(each);
    const isPlain = !sorted || UNSORTED.test(String(each));
    const press = () => {
      turnOrder(id, index, isNumber);
      if (sorted === true) fill(id, toldRows.get(get(id)) ?? []);
      else sorted();
    };
    return make(
      "th",
      { scope: "col", className: isNumber ? "number" : "" },
      isPlain
        ? String(each)
        : button(String(each), press, { title: `Sort by ${String(each).toLowerCase()}` }),
    );
  });
  drawOrder(id, heads);
  const heading = level ? make(level, { id: `h-${id}` }, label) : null;
  const region = make(
    "div",
    { className: "scroll", role: "region", ariaLabel: label, tabIndex: 0 },
    make("table", { ariaLabel: label }, make("thead", {}, make("tr", {}, ...heads)), make("tbody", { id })),
  );
  if (sorted === true) toldRows.set(region.querySelector("tbody"), []);
  const note = make("p", { id: `${id}-note`, className: "note" });
  return [heading, region, note].filter((each) => each !== null);
}

/** Numbers begin with the largest, texts with the first; then the other way around, then as it was. */
function turnOrder(id, column, isNumber) {
  const now = orders.get(id);
  if (now?.column !== column) orders.set(id, { column, isDescending: isNumber });
  else if (now.isDescending === isNumber) orders.set(id, { column, isDescending: !isNumber });
  else orders.delete(id);
  drawOrder(id, [...get(id).parentElement.tHead.rows[0].cells]);
}

function drawOrder(id, heads) {
  const order = orders.get(id);
  heads.forEach((head, index) => {
    const direction = order?.isDescending ? "descending" : "ascending";
    head.ariaSort = order?.column === index ? direction : null;
  });
}

/** Rows as their table is sorted. What is equal stays as it was. */
function inOrder(id, rows) {
  const order = orders.get(id);
  if (!order) return rows;
  const valueOf = (row) => {
    const told = row[order.column];
    const value =
      told !== null && typeof told === "object" ? (told.sort ?? ("sort" in told ? null : told.value)) : told;
    return value === undefined || value === "" ? null : value;
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number"
      ? a - b
      : String(a).localeCompare(String(b), "en", { numeric: true });
  const known = rows.filter((row) => valueOf(row) !== null);
  known.sort((a, b) => compare(valueOf(a), valueOf(b)) * (order.isDescending ? -1 : 1));
  return [...known, ...rows.filter((row) => valueOf(row) === null)];
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
  if (toldRows.has(body)) {
    toldRows.set(body, rows);
    rows = inOrder(id, rows);
  }
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
