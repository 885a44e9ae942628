// One topic: its partitions, what is in it, its configurations and who reads it, each at a place of its own.

const TOPIC_TABS = [
  ["", "Partitions"],
  ["messages", "Messages"],
  ["configs", "Configurations"],
  ["groups", "Groups"],
];

function tabs(label, base, offered, chosen) {
  return make(
    "nav",
    { className: "tabs", ariaLabel: label },
    ...offered.map(([id, name]) =>
      make("a", {
        href: hashOf(...base, ...(id ? [id] : [])),
        textContent: name,
        ariaCurrent: id === chosen ? "page" : null,
      }),
    ),
  );
}

function makeTopic(place) {
  const [name, tab = ""] = place.parts;
  const makeTab =
    { messages: makeMessages, configs: makeConfigs, groups: makeGroupsOfTopic }[tab] ?? makePartitions;
  const made = makeTab(name, place);
  return {
    title: `Topic ${name}`,
    ...made,
    nodes: [tabs("Of this topic", ["topics", name], TOPIC_TABS, tab), ...made.nodes],
  };
}

const PARTITION_COLUMNS = [
  ["Partition"],
  "Leader",
  ["Leader epoch"],
  "Replicas",
  "ISR",
  ["Log start"],
  ["High watermark"],
  ["Records"],
  ["Size"],
  "Why?",
];

function makePartitions(name) {
  const cards = make("dl");
  const id = make("p", { className: "note" });
  return {
    nodes: [cards, ...table("topic-partitions", "Partitions", PARTITION_COLUMNS, { sorted: true }), id],
    ask: () => askCluster("topic", { name }),
    draw(told) {
      const sum = (value) =>
        told.partitions.reduce(
          (all, each) => (all === null || value(each) === null ? null : all + value(each)),
          0,
        );
      fillCards(cards, [
        ["Partitions", count(told.partitions.length + (told.partitions_left_out ?? 0))],
        ["Records", count(sum(recordsOf))],
        ["Size", bytes(sum((each) => each.bytes))],
        ["Groups", count(told.groups.length + (told.groups_left_out ?? 0))],
      ]);
      fill(
        "topic-partitions",
        told.partitions.map((each) => [
          each.partition,
          bad(broker(each.leader), each.leader < 0),
          each.leader_epoch,
          list(each.replicas),
          bad(list(each.isr), each.isr.length < each.replicas.length),
          each.log_start_offset,
          each.high_watermark,
          by(recordsOf(each), recordsOf(each) === null ? null : count(recordsOf(each))),
          by(each.bytes, each.bytes === null ? null : bytes(each.bytes)),
          whyPartition(name, each.partition),
        ]),
      );
      more("topic-partitions", told.partitions_left_out);
      put(id, told.topic_id === null ? "" : `Topic id: ${told.topic_id}`);
    },
  };
}

const recordsOf = (each) =>
  each.high_watermark === null || each.log_start_offset === null
    ? null
    : each.high_watermark - each.log_start_offset;

function makeConfigs(name) {
  const filter = make("input", {
    id: "config-filter",
    type: "search",
    maxLength: 100,
    autocomplete: "off",
    spellcheck: false,
    oninput: () => draw(),
  });
  const isSet = make("input", { id: "config-set", type: "checkbox", onchange: () => draw() });
  let configs = [];
  function draw() {
    const isDefault = (each) => /default/i.test(each.source);
    const wanted = configs.filter(
      (each) => each.name.includes(filter.value) && !(isSet.checked && isDefault(each)),
    );
    fill(
      "topic-configs",
      wanted.map((each) => [
        { value: each.name, press: () => explainConfig(each), label: `What ${each.name} is` },
        each.is_sensitive ? "hidden" : each.value,
        each.source,
        each.synonyms
          .map((synonym) => `${synonym.name}=${synonym.value ?? "hidden"} (${synonym.source})`)
          .join(", "),
      ]),
    );
  }
  return {
    nodes: [
      make(
        "div",
        { className: "fields" },
        field("With this in their names", filter),
        field("only what is not a default", isSet, { className: "field check" }),
      ),
      ...table("topic-configs", "Configurations", ["Configuration", "Value", "Source", "Synonyms"], {
        sorted: true,
      }),
    ],
    ask: () => askCluster("topic", { name }),
    draw(told) {
      configs = told.configs;
      draw();
    },
    periodMs: () => CLUSTER_PERIOD_MS,
  };
}

function explainConfig(config) {
  openDialog(config.name, [
    make("p", {}, config.documentation || "The broker says nothing more about it."),
    facts([
      ["Value", config.is_sensitive ? "hidden" : (config.value ?? "none")],
      ["Source", config.source],
      ["Can be changed", config.is_read_only ? "no" : "yes"],
    ]),
    ...(config.synonyms.length
      ? [
          make("p", {}, "The first of these that is set decides:"),
          still(
            ["Name", "Value", "Source"],
            config.synonyms.map((each) => [each.name, each.value ?? "hidden", each.source]),
          ),
        ]
      : []),
  ]);
}

function makeGroupsOfTopic(name) {
  return {
    nodes: table("topic-groups", "Groups with committed offsets in it", ["Group", "Why?"], { sorted: true }),
    ask: () => askCluster("topic", { name }),
    draw(told) {
      fill(
        "topic-groups",
        told.groups.map((id) => [groupLink(id), why([`group ${id}`, { subject: "group", group: id }])]),
      );
      more("topic-groups", told.groups_left_out);
    },
  };
}
