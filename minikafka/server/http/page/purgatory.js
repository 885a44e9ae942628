// What waits in a broker's purgatories, and its timing wheel.

const WAITING_SHOWN = 100;
const WHEEL_SIZE = 20;

function drawWaiting(id, told) {
  const seconds = (ms) => (ms / 1000).toFixed(1);
  fill(
    id,
    told.purgatories.flatMap((each) =>
      each.waiting.map((waits) => [
        each.name,
        waits.keys.join(", ") + (waits.keys_left_out ? ` and ${waits.keys_left_out} more` : ""),
        seconds(told.at_ms - waits.since_ms),
        seconds(waits.until_ms - told.at_ms),
        new Date(waits.until_ms).toISOString(),
        waits.waits_for,
      ]),
    ),
  );
  more(
    id,
    told.purgatories.reduce((sum, each) => sum + each.waiting_left_out, 0),
  );
}

/** A row for each level of the wheel, a cell for each bucket: the fuller, the darker. */
function drawWheel(id, levels) {
  const tick = (ms) =>
    ms < 1000 ? `${ms} ms` : ms < 60000 ? `${ms / 1000} s` : `${(ms / 60000).toFixed(1)} min`;
  fill(
    id,
    levels.map((each) => [`${tick(each.tick_ms)} a bucket`, ...each.counts.map((count) => count || "")]),
  );
  levels.forEach((each, row) =>
    each.counts.forEach((count, bucket) =>
      get(id).rows[row].cells[bucket + 1].style.setProperty(
        "--heat",
        count && Math.min(1, 0.2 + Math.log10(count) / 4),
      ),
    ),
  );
  more(
    id,
    0,
    "A level begins where the one above it ends. When a coarse bucket is due, what is in it " +
      "moves to finer ones.",
  );
}

views.purgatory = {
  name: "Purgatory",
  isOfMinikafka: true,
  make(place) {
    const choice = select("purgatory-broker", [], {
      onchange: () => {
        keep({ broker: choice.value });
        lookNow();
      },
    });
    const wheel = table("broker-wheel", "Timing wheel", ["Level", "Operations by bucket, from now on"]);
    wheel[1].querySelector("th:last-child").colSpan = WHEEL_SIZE;
    wheel[1].classList.add("wheel");
    let asked = null;
    return {
      title: "Purgatory",
      nodes: [
        make(
          "p",
          { className: "quiet" },
          "Requests that wait for something, such as the in-sync replicas or more " +
            "bytes, and the timing wheel that ends their wait.",
        ),
        make("div", { className: "fields" }, field("Broker", choice)),
        ...table("broker-waiting", "What waits", [
          "Purgatory",
          "Under these keys",
          ["Waited, s"],
          ["Left, s"],
          "Until",
          "Waits for",
        ]),
        ...wheel,
      ],
      ask() {
        const alive = cluster
          ? cluster.brokers.filter((each) => each.is_alive).map((each) => each.node_id)
          : [];
        offer(
          choice,
          alive.map((id) => [String(id), broker(id)]),
        );
        if (asked === null) {
          asked = place.query.get("broker") ?? String(cluster?.asked_of ?? alive[0] ?? "");
          choice.value = asked;
        }
        return askCluster("purgatory", { broker: choice.value || asked, limit: WAITING_SHOWN });
      },
      draw(told) {
        drawWaiting("broker-waiting", told);
        drawWheel("broker-wheel", told.wheel);
      },
    };
  },
};
