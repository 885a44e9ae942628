// Reassignments under way: how far they are, and when they will be done.

function reassignmentRow(each, mayChange) {
  const name = `${each.topic}-${each.partition}`;
  const share =
    each.bytes_left === null || !each.bytes_total
      ? null
      : Math.min(1, Math.max(0, 1 - each.bytes_left / each.bytes_total));
  const cancel = {
    value: "cancel…",
    label: `Cancel the reassignment of ${name}`,
    press: () =>
      confirmed(
        `Cancel the reassignment of ${name}?`,
        "Its replicas go back to where they were, and what " + "was copied is deleted.",
        "Cancel the reassignment",
        () => change("reassignments/cancel", { topic: each.topic, partition: each.partition }),
      ),
  };
  return [
    topicLink(each.topic),
    each.partition,
    list(each.replicas),
    list(each.adding),
    list(each.removing),
    by(
      share,
      share === null
        ? NOT_KNOWN
        : { value: `${Math.floor(share * 100)} %`, progress: share, label: `Progress of ${name}` },
    ),
    by(each.bytes_left, each.bytes_left === null ? null : bytes(each.bytes_left)),
    by(each.bytes_per_s, perSecond(each.bytes_per_s, bytes)),
    by(each.seconds_left, each.seconds_left === null ? NOT_KNOWN : duration(each.seconds_left * 1000)),
    why([
      `the reassignment of ${name}`,
      { subject: "reassignment", topic: each.topic, partition: each.partition },
    ]),
    mayChange ? cancel : null,
  ];
}

views.reassignments = {
  name: "Reassignments",
  make() {
    const refused = make("p", { id: "cancel-refused", className: "note" });
    return {
      title: "Reassignments",
      nodes: [
        ...table(
          "reassignments",
          "Reassignments",
          [
            "Topic",
            ["Partition"],
            "Replicas",
            "Adding",
            "Removing",
            "Done",
            ["Left"],
            ["Rate"],
            ["Time left"],
            "Why?",
            "Cancel",
          ],
          { level: null, sorted: true },
        ),
        refused,
      ],
      ask: () => askCluster("reassignments"),
      draw(told) {
        const allowed = may("change");
        fill(
          "reassignments",
          told.reassignments.map((each) => reassignmentRow(each, allowed === true)),
        );
        more("reassignments", told.left_out ?? 0);
        put(refused, allowed === true ? "" : `They cannot be cancelled from here: ${allowed}.`);
      },
    };
  },
};
