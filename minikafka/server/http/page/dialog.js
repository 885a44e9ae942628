// The one dialog: an answer, a record, or whether one is sure.

const CLOSE = "Close";

/** Show nodes under a title. Escape, or the button, closes it, and the focus goes back. */
function openDialog(title, nodes, buttons = []) {
  const dialog = get("dialog");
  put(get("dialog-title"), title);
  get("dialog-content").replaceChildren(...nodes);
  get("dialog-buttons").replaceChildren(
    ...buttons,
    button(CLOSE, () => dialog.close()),
  );
  if (!dialog.open) dialog.showModal();
  get("dialog-title").focus();
}

/** Facts as a list of terms: pairs of a name, and a text or a node. */
function facts(pairs) {
  return make(
    "dl",
    { className: "facts" },
    ...pairs.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]),
  );
}

/** A table that does not change. */
function still(columns, rows) {
  const row = (cells) => make("tr", {}, ...cells.map((each) => make("td", {}, each)));
  return make(
    "div",
    { className: "scroll", tabIndex: 0 },
    make(
      "table",
      {},
      make("thead", {}, make("tr", {}, ...columns.map((each) => make("th", { scope: "col" }, each)))),
      make("tbody", {}, ...rows.map(row)),
    ),
  );
}

/** Have something done that was confirmed: `act` is async, and what it throws is shown. */
function confirmed(title, sentence, verb, act) {
  const said = make("p", { role: "status" });
  const sure = button(
    verb,
    async () => {
      sure.disabled = true;
      try {
        await act();
        get("dialog").close();
        lookNow();
      } catch (error) {
        put(said, error.message);
        said.className = "bad";
        sure.disabled = false;
      }
    },
    { className: "danger" },
  );
  openDialog(title, [make("p", {}, sentence), said], [sure]);
}
