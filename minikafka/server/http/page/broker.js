// What the broker that has the page says of itself, without a console: its own status.json, events.json and
// purgatory.json. The markup is in page.html.

const isLocal = (host) => /^(localhost|127\..*|\[::1\])$/.test(host);
let pages = {}; // of the other brokers, by id

/** A page that can be reached from here: a loopback address leads to the reader's own machine. */
function reached(address, search = "") {
  const page = address && new URL(search, address);
  const isWeb = page && /^https?:$/.test(page.protocol);
  return isWeb && (!isLocal(page.hostname) || isLocal(location.hostname)) ? page : null;
}

/** A cell that leads to a broker's own page, where it has one that can be reached from here. */
function at(id, value, isBad = false) {
  const page = reached(pages[id], location.search);
  if (page) page.hash = location.hash; // the same there
  return { value, isBad, href: page && page.href };
}

function summarize(cluster) {
  fillCards(get("summary"), [
    ["Controller", cluster.controller_id < 0 ? bad("none") : broker(cluster.controller_id)],
    ["Controller epoch", cluster.controller_epoch],
    ["Topics", cluster.topics],
    ["Partitions", cluster.partitions],
    ["Offline", bad(cluster.offline_partitions, cluster.offline_partitions > 0)],
    ["Under-replicated", bad(cluster.under_replicated_partitions, cluster.under_replicated_partitions > 0)],
    ["Under min ISR", bad(cluster.under_min_isr_partitions, cluster.under_min_isr_partitions > 0)],
  ]);
}

function drawPartitions(status) {
  fill(
    "topics",
    status.topics.map((each) => [
      each.name,
      each.partitions,
      bad(each.offline_partitions, each.offline_partitions > 0),
      bad(each.under_replicated_partitions, each.under_replicated_partitions > 0),
      bad(each.under_min_isr_partitions, each.under_min_isr_partitions > 0),
    ]),
  );
  more("topics", status.topics_left_out);
  const whose = {
    leader: () => "the leader, this broker",
    follower: (each) => at(each.leader, "the follower on this broker"),
    null: (each) =>
      each.leader < 0 ? "not known here" : at(each.leader, `not known here: ask broker ${each.leader}`),
  };
  fill(
    "partitions",
    status.partitions.map((each) => [
      each.topic,
      each.partition,
      bad(broker(each.leader), each.is_offline),
      each.leader_epoch,
      list(each.replicas),
      bad(
        list(each.isr) + (each.is_under_min_isr ? ` (under min ISR, ${each.min_isr})` : ""),
        each.is_under_replicated,
      ),
      each.log_start_offset,
      each.high_watermark,
      each.log_end_offset,
      whose[each.offsets_from](each),
    ]),
  );
  more(
    "partitions",
    status.partitions_left_out,
    "Those that are offline, under min ISR " +
      "(producers with acks=all are refused) or under-replicated come first.",
  );
}

function drawGroups(status) {
  fill(
    "groups",
    status.groups.map((each) => [
      each.group_id,
      each.type,
      each.state,
      each.members,
      each.partitions,
      each.lag === null ? "not known here" : each.lag,
    ]),
  );
  const notes = status.coordinators.map((each) =>
    each.node_id < 0
      ? `Nobody coordinates ${each.partitions} partitions of __consumer_offsets.`
      : `Broker ${each.node_id} coordinates the groups of ${each.partitions} others of its partitions.`,
  );
  if (status.loading_partitions) notes.push(`${status.loading_partitions} partitions are loading.`);
  if (status.failed_partitions) notes.push(`${status.failed_partitions} partitions could not be loaded.`);
  more("groups", status.groups_left_out, notes.join(" "));
  fill(
    "offsets",
    status.offsets.map((each) => [
      each.group_id,
      each.topic,
      each.partition,
      each.committed_offset,
      each.high_watermark,
      each.lag !== null
        ? each.lag
        : each.leader < 0
          ? "not known"
          : at(each.leader, `ask broker ${each.leader}`),
    ]),
  );
  more("offsets", status.offsets_left_out);
}

function drawShareAndStreams(shared, streams) {
  fill(
    "share-partitions",
    shared.partitions.map((each) => [
      each.group_id,
      each.topic,
      each.partition,
      each.start_offset,
      each.next_offset,
      each.acquired,
      each.high_watermark,
      each.lag,
    ]),
  );
  more(
    "share-partitions",
    shared.partitions_left_out,
    shared.loading ? `${shared.loading} are loading.` : "",
  );
  const tasks = (some) =>
    Object.entries(some)
      .map(([subtopology, partitions]) => partitions.map((each) => `${subtopology}_${each}`).join(", "))
      .join(", ");
  fill(
    "streams",
    streams.members.map((each) => [
      each.group_id,
      each.member_id,
      each.client_id,
      each.process_id,
      each.member_epoch,
      tasks(each.active),
      tasks(each.standby),
      tasks(each.warmup),
    ]),
  );
  more("streams", streams.members_left_out);
}

function drawQuotas(status) {
  fill(
    "set",
    status.set.map((each) => [each.entity, each.quota, rounded(each.bound)]),
  );
  more("set", status.set_left_out);
  fill(
    "measured",
    status.measured.map((each) => [
      each.client_id || "any",
      each.user || "any",
      each.quota,
      rounded(each.observed),
      rounded(each.bound),
    ]),
  );
  more("measured", status.measured_left_out);
  fill(
    "throttles",
    status.throttles.map((each) => [
      each.client_id,
      each.user,
      new Date(each.at_ms).toISOString(),
      each.quota,
      each.throttle_time_ms,
      each.formula,
    ]),
  );
  more("throttles", status.throttles_left_out);
  fill(
    "replication",
    status.replication.map((each) => [
      each.name,
      rounded(each.rate),
      each.bound === null ? "no limit" : each.bound,
    ]),
  );
}

const EVENTS_SHOWN = 100;
let events = []; // the newest last
let seen = 0; // the sequence number of the last one that the broker has told of
let eventsOf = ""; // the filter that they were asked with

function drawEvents(told) {
  const isBad = (each) => each.kind === "log_dir" || Boolean(each.event.is_unclean || each.event.is_lost);
  events = [...events, ...told.events.map((each) => ({ ...each, isBad: isBad(each) }))].slice(-EVENTS_SHOWN);
  seen = told.last_sequence;
  fill(
    "events",
    [...events]
      .reverse()
      .map((each) => [
        new Date(each.at_ms).toISOString(),
        each.kind,
        each.subject,
        bad(each.text + (each.left_out ? ` (${each.left_out} more were not kept)` : ""), each.isBad),
      ]),
  );
  more(
    "events",
    0,
    told.is_on
      ? "Those of all brokers in one order: minikafka events."
      : "Nothing is recorded: event.recorder.max.bytes is 0.",
  );
  drawTimeline(get("timeline"), events, told.at_ms);
}

function drawSecurity(status) {
  fill(
    "listeners",
    status.listeners.map((each) => [
      each.name,
      each.address,
      each.protocol,
      list(each.mechanisms),
      each.client_auth,
      each.connections,
    ]),
  );
  more(
    "listeners",
    0,
    status.authorizer === null
      ? "No authorizer: everybody may do anything."
      : `The authorizer is ${status.authorizer}.`,
  );
  fill(
    "connected",
    status.connected.map((each) => [each.principal, each.listener, each.connections]),
  );
  more("connected", status.connected_left_out);
}

function drawBroker(status) {
  const self = status.broker;
  document.title = `minikafka, broker ${self.node_id}`;
  put(get("title"), document.title);
  put(
    get("about"),
    `version ${self.version} · cluster ${status.cluster.cluster_id} · broker epoch ` +
      self.broker_epoch +
      (self.is_controller ? " · controller" : ""),
  );
  summarize(status.cluster);
  pages = Object.fromEntries(
    status.brokers
      .filter((each) => each.page && each.node_id !== self.node_id)
      .map((each) => [each.node_id, each.page]),
  );
  fill(
    "brokers",
    status.brokers.map((each) => [
      at(each.node_id, broker(each.node_id)),
      bad(each.is_alive ? "alive" : "offline", !each.is_alive),
      Object.entries(each.listeners)
        .map(([name, address]) => `${name} ${address}`)
        .join(", "),
      each.rack,
      each.epoch < 0 ? null : each.epoch,
      each.leaders,
      each.replicas,
    ]),
  );
  more("brokers", status.brokers_left_out);
  drawPartitions(status);
  drawGroups(status.groups);
  drawShareAndStreams(status.share_partitions, status.streams);
  fill(
    "purgatories",
    status.purgatories.map((each) => [each.name, each.delayed, each.watched]),
  );
  drawSecurity(status.security);
  drawQuotas(status.quotas);
  const offline = Object.entries(self.offline_log_dirs);
  return offline.map(([directory, why]) => `The log directory ${directory} is offline: ${why}`).join("\n");
}

function askBroker() {
  const subject = get("topic").value;
  if (subject !== eventsOf) [events, seen, eventsOf] = [[], 0, subject];
  return Promise.all([
    ask(`status.json?${new URLSearchParams(subject ? { topic: subject } : {})}`),
    ask(`events.json?${new URLSearchParams({ subject, after: seen, newest: EVENTS_SHOWN })}`),
    ask(`purgatory.json?${new URLSearchParams({ key: subject, limit: 50 })}`),
  ]);
}

views.broker = {
  name: "This broker",
  make: () => ({
    title: "This broker",
    nodes: [],
    isOwn: true,
    ask: askBroker,
    draw([status, told, waiting]) {
      const trouble = drawBroker(status);
      drawEvents(told);
      drawWaiting("waiting", waiting);
      drawWheel("wheel", waiting.wheel);
      return trouble;
    },
  }),
};

get("topic").value = new URLSearchParams(location.search).get("topic") ?? "";
get("topic").addEventListener("input", () => {
  const value = get("topic").value;
  const search = value ? `?${new URLSearchParams({ topic: value })}` : location.pathname;
  history.replaceState(null, "", search + location.hash);
  look();
});
