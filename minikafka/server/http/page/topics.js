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
  "Why?",
];

/** A filter that is kept in the hash, and looks when it changes. */
function filterField(id, label, place) {
  const input = make("input", {
    id,
    type: "search",
    maxLength: 249,
    autocomplete: "off",
    spellcheck: false,
    value: place.query.get("filter") ?? "",
  });
  input.addEventListener("input", () => {
    keep({ filter: input.value });
    lookNow();
  });
  return [input, make("div", { className: "fields" }, field(label, input))];
}

views.topics = {
  name: "Topics",
  make(place) {
    if (place.parts.length) return makeTopic(place);
    const [filter, fields] = filterField("topic-filter", "Topics with this in their names", place);
    const internal = table("internal-topics", "Internal topics", TOPIC_COLUMNS, { level: null });
    const summary = make("summary", {}, "Internal topics");
    return {
      title: "Topics",
      nodes: [
        fields,
        ...table("all-topics", "Topics", TOPIC_COLUMNS, { level: null }),
        make("details", { id: "internal" }, summary, ...internal),
      ],
      periodMs: () => LIST_PERIOD_MS,
      ask: () => askCluster("topics", { filter: filter.value, limit: LIST_MAX }),
      draw(told) {
        const ours = told.topics.filter((each) => each.is_internal);
        fill("all-topics", told.topics.filter((each) => !each.is_internal).map(topicRow));
        more("all-topics", told.left_out, told.left_out ? "The filter finds them." : "");
        fill("internal-topics", ours.map(topicRow));
        put(summary, `Internal topics (${ours.length})`);
      },
    };
  },
};
