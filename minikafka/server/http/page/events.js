// What all brokers have decided, in one order, as a time line and a table.

const CLUSTER_EVENTS_SHOWN = 200;

views.events = {
  name: "Events",
  isOfMinikafka: true,
  make(place) {
    const [filter, fields] = filterField("event-filter", "Of subjects with this in their names", place);
    const kind = select("event-kind", [["", "all"]], { onchange: () => draw() });
    const of = select("event-broker", [["", "all"]], { onchange: () => draw() });
    const only = make("input", { id: "event-bad", type: "checkbox", onchange: () => draw() });
    fields.append(
      field("Kind", kind),
      field("Broker", of),
      field("only what is bad", only, { className: "field check" }),
    );
    const timeline = make("div", { className: "timeline" });
    let last = null;
    function draw() {
      if (!last) return;
      const distinct = (values) => [["", "all"], ...[...new Set(values)].sort().map(String)];
      offer(kind, distinct(last.events.map((each) => each.kind)));
      offer(of, distinct(last.events.map((each) => each.broker)));
      const wanted = last.events
        .filter(
          (each) =>
            (!kind.value || each.kind === kind.value) &&
            (!of.value || String(each.broker) === of.value) &&
            (!only.checked || each.is_bad),
        )
        .map((each) => ({ ...each, isBad: each.is_bad }))
        .reverse();
      fill(
        "all-events",
        wanted.map((each) => [
          timeText(each.at_ms),
          each.broker,
          each.kind,
          each.subject,
          bad(each.text, each.isBad),
        ]),
      );
      drawTimeline(timeline, wanted, last.at_ms);
      const silent = Object.entries(last.not_answered).map(
        ([id, reason]) => `Broker ${id} has not answered: ${reason}.`,
      );
      more("all-events", 0, silent.join(" "));
    }
    return {
      title: "Events",
      nodes: [
        fields,
        timeline,
        ...table("all-events", "Events", ["Time", ["Broker"], "Kind", "Subject", "What, and why"], {
          level: null,
        }),
      ],
      ask: () => askCluster("events", { newest: CLUSTER_EVENTS_SHOWN, subject: filter.value }),
      draw(told) {
        last = told;
        draw();
      },
    };
  },
};
