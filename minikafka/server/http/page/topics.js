// All topics of the cluster.

const LIST_MAX = 200;
const LIST_PERIOD_MS = 5000;

const topicLink = (name) => ({ value: name, href: new URL(hashOf("topics", name), location.href).href });
const groupLink = (id) => ({ value: id, href: new URL(hashOf("groups", id), location.href).href });

const troubleCells = (each) =>
  [each.offline, each.under_replicated, each.under_min_isr].map((value) => bad(value, value > 0));

const topicRow = (each) => [
  topicLink(each.name),
  each.partitions,
  each.replication_factor,
  ...troubleCells(each),
  each.bytes === null ? null : bytes(each.bytes),
  each.records === null ? null : count(each.records),
  perSecond(each.records_per_s ?? null, decimal),
  why([`deletion of topic ${each.name}`, { subject: "topic", topic: each.name }]),
];

const TOPIC_COLUMNS = [
  "Topic",
  ["Partitions"],
  ["Replication factor"],
  ["Offline"],
  ["Under-replicated"],
  ["Under min ISR"],
  ["Size"],
  ["Records"],
  ["Written"],
  "Why?",
];
/** What the server calls these columns. */
const TOPIC_SORTS = [
  "name",
  "partitions",
  "replication_factor",
  "offline",
  "under_replicated",
  "under_min_isr",
  "bytes",
  "records",
  "records_per_s",
];
const COUNTED_SORTS = /^-?(bytes|records|records_per_s)$/;

/** The order of a list that the server sorts, as it takes it: "-bytes" is by size, the largest first. */
function sortOf(id, names) {
  const order = orders.get(id);
  return order ? `${order.isDescending ? "-" : ""}${names[order.column]}` : "";
}

/** Take the order that the place says. */
function sortAs(id, names, text) {
  const column = names.indexOf((text ?? "").replace(/^-/, ""));
  if (column < 0) orders.delete(id);
  else orders.set(id, { column, isDescending: text.startsWith("-") });
}

/**
 * A filter that is kept in the hash; what it filters is asked for when it changes. Of a list that the server sorts
 * (the id of its table, what the server calls its columns) the order is kept there, too, and what is to be called
 * when it changes comes back as well.
 */
function filterField(id, label, place, list = null) {
  if (list) sortAs(list.id, list.names, place.query.get("sort"));
  const input = make("input", {
    id,
    type: "search",
    maxLength: 249,
    autocomplete: "off",
    spellcheck: false,
    value: place.query.get("filter") ?? "",
  });
  const changed = () => {
    keep({ filter: input.value, sort: list ? sortOf(list.id, list.names) : "" });
    lookNow();
  };
  input.addEventListener("input", changed);
  return [input, make("div", { className: "fields" }, field(label, input)), changed];
}

views.topics = {
  name: "Topics",
  make(place) {
    if (place.parts.length) return makeTopic(place);
    const [filter, fields, sorted] = filterField(
      "topic-filter",
      "Topics with this in their names",
      place,
      { id: "all-topics", names: TOPIC_SORTS },
    );
    const sort = () => sortOf("all-topics", TOPIC_SORTS);
    const internal = table("internal-topics", "Internal topics", TOPIC_COLUMNS, { level: null });
    const summary = make("summary", {}, "Internal topics");
    return {
      title: "Topics",
      nodes: [
        fields,
        ...table("all-topics", "Topics", TOPIC_COLUMNS, { level: null, sorted }),
        make("details", { id: "internal" }, summary, ...internal),
      ],
      periodMs: () => LIST_PERIOD_MS,
      ask: () => askCluster("topics", { filter: filter.value, limit: LIST_MAX, sort: sort() }),
      draw(told) {
        const ours = told.topics.filter((each) => each.is_internal);
        fill("all-topics", told.topics.filter((each) => !each.is_internal).map(topicRow));
        const isCounted = told.uncounted && COUNTED_SORTS.test(sort());
        const uncounted = isCounted ? ` ${counted(told.uncounted, "topic")} could not be counted.` : "";
        more("all-topics", told.left_out, (told.left_out ? "The filter finds them." : "") + uncounted);
        fill("internal-topics", ours.map(topicRow));
        put(summary, `Internal topics (${ours.length})`);
      },
    };
  },
};
