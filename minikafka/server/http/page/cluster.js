// The whole cluster: what all brokers say, and rates, which are computed between two looks.

const SAMPLES_MAX = 60;
const SAMPLES_APART_MS = 500;
const COUNTERS = ["in_bytes", "out_bytes", "requests"];
const TROUBLED_SHOWN = 10;

/** By broker: [{at_ms, in_bytes, …}] of rates per second, the newest last; null where it is not known. */
const rates = new Map();
const counters = new Map();

/** Keep what the counters of each broker rose by since the last look. A counter that fell has begun anew. */
function remember(told) {
  for (const each of told.brokers) {
    const before = counters.get(each.node_id);
    const elapsedMs = before ? told.at_ms - before.at_ms : 0;
    if (before && elapsedMs < SAMPLES_APART_MS) continue; // the server has answered out of its memory
    counters.set(each.node_id, { at_ms: told.at_ms, ...each });
    if (!before) continue;
    const rate = (name) =>
      each[name] === null || before[name] === null || each[name] < before[name]
        ? null
        : ((each[name] - before[name]) * 1000) / elapsedMs;
    const sample = { at_ms: told.at_ms, ...Object.fromEntries(COUNTERS.map((name) => [name, rate(name)])) };
    rates.set(each.node_id, [...(rates.get(each.node_id) ?? []), sample].slice(-SAMPLES_MAX));
  }
  for (const id of rates.keys()) if (!told.brokers.some((each) => each.node_id === id)) rates.delete(id);
}

const rateNow = (id, name) => rates.get(id)?.at(-1)?.[name] ?? null;
const linePairs = (id, name) => (rates.get(id) ?? []).map((each) => [each.at_ms, each[name]]);

/** Pairs of all brokers together, of the looks that there are of the first of them. */
function totalPairs(name) {
  const sums = new Map();
  for (const samples of rates.values()) {
    for (const each of samples)
      if (each[name] !== null) sums.set(each.at_ms, (sums.get(each.at_ms) ?? 0) + each[name]);
  }
  return [...sums].sort(([a], [b]) => a - b).slice(-SAMPLES_MAX);
}

function total(name, shown, title) {
  const pairs = totalPairs(name);
  const last = pairs.length ? pairs[pairs.length - 1][1] : null;
  const isKnown = cluster.brokers.some((each) => each[name] !== null); // Apache Kafka does not say
  const value = last !== null ? perSecond(last, shown) : isKnown ? "…" : NOT_KNOWN;
  return { value, spark: pairs, label: `${title}, the last minutes` };
}

function onDisk() {
  const known = cluster.brokers.filter((each) => each.log_bytes !== null);
  return bytes(known.length ? known.reduce((sum, each) => sum + each.log_bytes, 0) : null);
}

const rateCell = (id, name, shown) => by(rateNow(id, name), perSecond(rateNow(id, name), shown));

function brokerRow(each) {
  const page = reached(each.page);
  if (page) page.hash = hashOf("broker");
  const silent = each.why_not ? `: ${each.why_not}` : "";
  return [
    { value: broker(each.node_id) + (each.is_controller ? " (controller)" : ""), href: page && page.href },
    bad((each.is_alive ? "alive" : "offline") + silent, !each.is_alive || Boolean(each.why_not)),
    why([`broker ${each.node_id}`, { subject: "broker", broker: each.node_id }]),
    each.started_at_ms
      ? by(cluster.at_ms - each.started_at_ms, duration(cluster.at_ms - each.started_at_ms))
      : null,
    { spark: linePairs(each.node_id, "in_bytes"), label: `Bytes in of broker ${each.node_id}` },
    rateCell(each.node_id, "in_bytes", bytes),
    rateCell(each.node_id, "out_bytes", bytes),
    rateCell(each.node_id, "requests", decimal),
    by(each.log_bytes, each.log_bytes === null ? null : bytes(each.log_bytes)),
    each.leaders,
    each.replicas,
    each.connections,
    each.host === null ? null : `${each.host}:${each.port}`,
    each.rack,
    each.version,
  ];
}

/** Nothing is amiss, as of the last look. */
const isWell = () =>
  cluster &&
  !(cluster.offline_partitions || cluster.under_replicated_partitions || cluster.under_min_isr_partitions);

function clusterCards() {
  const alive = cluster.brokers.filter((each) => each.is_alive).length;
  const trouble = (value) => bad(value === null ? NOT_KNOWN : count(value), value > 0);
  const preferred = cluster.preferred_leader_partitions;
  const share = preferred === null || !cluster.partitions ? null : preferred / cluster.partitions;
  return [
    ["Brokers alive", bad(`${alive} of ${cluster.brokers.length}`, alive < cluster.brokers.length)],
    ["Controller", bad(broker(cluster.controller_id ?? -1), (cluster.controller_id ?? -1) < 0)],
    ["Topics", count(cluster.topics)],
    ["Partitions", count(cluster.partitions)],
    ["Offline", trouble(cluster.offline_partitions)],
    ["Under-replicated", trouble(cluster.under_replicated_partitions)],
    ["Under min ISR", trouble(cluster.under_min_isr_partitions)],
    ["Led by the preferred", share === null ? NOT_KNOWN : `${Math.floor(share * 100)} %`],
    ["Bytes in", total("in_bytes", bytes, "Bytes in")],
    ["Bytes out", total("out_bytes", bytes, "Bytes out")],
    ["Requests", total("requests", decimal, "Requests")],
    ["On disk", onDisk()],
  ];
}

views[""] = {
  name: "Cluster",
  make() {
    const cards = make("dl", { id: "cluster-summary" });
    return {
      title: "Cluster",
      nodes: [
        cards,
        ...table(
          "cluster-brokers",
          "Brokers",
          [
            "Broker",
            "State",
            "Why?",
            "Up for",
            "Bytes in",
            ["In"],
            ["Out"],
            ["Requests"],
            ["On disk"],
            ["Leaders"],
            ["Replicas"],
            ["Connections"],
            "Address",
            "Rack",
            "Version",
          ],
          { sorted: true },
        ),
        ...table("troubled", "Topics in trouble", [
          "Topic",
          ["Partitions"],
          ["Offline"],
          ["Under-replicated"],
          ["Under min ISR"],
        ]),
      ],
      ask: async () => (isWell() ? { topics: [] } : askCluster("topics", { limit: TROUBLED_SHOWN })),
      draw(told) {
        if (!cluster) throw new Error(clusterError);
        fillCards(cards, clusterCards());
        fill("cluster-brokers", cluster.brokers.map(brokerRow));
        more("cluster-brokers", cluster.brokers_left_out ?? 0);
        const troubled = told.topics.filter(
          (each) => each.offline || each.under_replicated || each.under_min_isr,
        );
        fill(
          "troubled",
          troubled.map((each) => [topicLink(each.name), each.partitions, ...troubleCells(each)]),
        );
        more("troubled", 0, troubled.length === TROUBLED_SHOWN ? "There may be more: see topics." : "");
        return cluster.offline_partitions > 0
          ? `${counted(cluster.offline_partitions, "partition")} offline: ` +
              "nothing can be written to them or read from them."
          : "";
      },
    };
  },
};
