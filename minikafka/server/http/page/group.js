// One group: its members, its lag over time, and where it reads on: a reset is shown first, then done.

const RESETS = [
  ["earliest", "the earliest"],
  ["latest", "the latest"],
  ["offset", "an offset"],
  ["time", "a time"],
  ["by", "so many further (or back)"],
];

function makeGroup(place) {
  const [id] = place.parts;
  const cards = make("dl", { id: "group-summary" });
  const chart = line("chart");
  const chartSays = make("p", { id: "lag-says", className: "note" });
  const reset = makeReset(id);
  return {
    title: `Group ${id}`,
    nodes: [
      cards,
      make(
        "p",
        { className: "buttons" },
        button("Why?", () => askWhy([[`group ${id}`, { subject: "group", group: id }]]), { id: "group-why" }),
      ),
      make("h3", {}, "Lag, over time"),
      chart,
      chartSays,
      ...table(
        "group-offsets",
        "Offsets",
        ["Topic", ["Partition"], ["Committed"], ["Log start"], ["High watermark"], ["Lag"], "Member", "Why?"],
        { sorted: true },
      ),
      ...table("group-members", "Members", ["Member", "Client id", "Host", "Instance id", "Assigned"], {
        sorted: true,
      }),
      ...reset.nodes,
    ],
    ask: () => askCluster("group", { id }),
    draw(told) {
      const lags = told.offsets.filter((each) => each.committed !== null).map((each) => each.lag);
      const lag = lags.some((each) => each === null) ? null : lags.reduce((sum, each) => sum + each, 0);
      fillCards(cards, [
        ["State", told.state],
        ["Type", told.type],
        ["Protocol", told.protocol || "none"],
        ["Coordinator", broker(told.coordinator ?? -1)],
        ["Members", count(told.members.length + (told.members_left_out ?? 0))],
        ["Lag", count(told.offsets_left_out ? null : lag)],
      ]);
      drawLag(chart, chartSays, told.lag_history);
      fill(
        "group-offsets",
        told.offsets.map((each) => [
          topicLink(each.topic),
          each.partition,
          each.committed,
          each.log_start_offset,
          each.high_watermark,
          each.lag,
          each.member_id,
          whyPartition(each.topic, each.partition),
        ]),
      );
      more("group-offsets", told.offsets_left_out);
      fill(
        "group-members",
        told.members.map((each) => [
          each.member_id,
          each.client_id,
          each.host,
          each.instance_id,
          each.assignment.map(([topic, partitions]) => `${topic}: ${list(partitions)}`).join("; "),
        ]),
      );
      more("group-members", told.members_left_out);
      reset.draw(told);
    },
  };
}

function drawLag(chart, says, history) {
  const known = history.filter(([, lag]) => lag !== null);
  const most = Math.max(0, ...known.map(([, lag]) => lag));
  const label =
    known.length < 2
      ? "The line begins with the second look."
      : `The last ${duration(known[known.length - 1][0] - known[0][0])}: now ` +
        `${count(known[known.length - 1][1])}, ` +
        `at most ${count(most)}. Somebody must look: the server keeps 15 minutes of it.`;
  drawLine(chart, known, label);
  put(says, label);
}

function makeReset(id) {
  const refused = make("p", { id: "reset-refused", className: "note" });
  const topic = select("reset-topic", [["", "all its topics"]]);
  const to = select("reset-to", RESETS, { onchange: fit });
  const number = make("input", { id: "reset-number", type: "number", value: "0" });
  const time = make("input", { id: "reset-time", type: "datetime-local", step: "1" });
  const said = make("p", { id: "reset-said", role: "status" });
  const act = button("", null, { id: "reset-do", className: "danger", hidden: true });
  const result = table("reset-changes", "What changes", ["Topic", ["Partition"], ["From"], ["To"], "Note"], {
    level: null,
  });
  const [numberField, timeField] = [field("Number", number), field("Time", time)];
  const form = make(
    "form",
    {
      hidden: true, // until it is known whether there may be a reset; what is above it moves it until then
      onsubmit: (event) => {
        event.preventDefault();
        send(true);
      },
      oninput: forget,
    },
    make(
      "div",
      { className: "fields" },
      field("Topic", topic),
      field("To", to),
      numberField,
      timeField,
      make("button", { id: "reset-try" }, "Show what would change"),
    ),
  );
  const shown = make("div", { hidden: true }, ...result, make("p", { className: "buttons" }, act));

  function fit() {
    numberField.hidden = !/^(offset|by)$/.test(to.value);
    timeField.hidden = to.value !== "time";
  }

  /** What was shown is not what would be done. */
  function forget() {
    shown.hidden = act.hidden = true;
    put(said, "");
  }

  function target() {
    if (to.value === "offset") return `offset:${number.value || 0}`;
    if (to.value === "by") return `by:${Number(number.value) < 0 ? "" : "+"}${number.value || 0}`;
    return to.value === "time" ? `time:${time.value ? new Date(time.value).getTime() : 0}` : to.value;
  }

  async function send(
    isDryRun,
    body = { group_id: id, topic: topic.value || null, partitions: null, to: target() },
  ) {
    said.className = "";
    put(said, isDryRun ? "The brokers are asked…" : "It is done…");
    act.disabled = true;
    try {
      const told = await change("group/reset", { ...body, dry_run: isDryRun });
      shown.hidden = false;
      fill(
        "reset-changes",
        told.changes.map((each) => [each.topic, each.partition, each.from, each.to, each.note]),
      );
      put(
        said,
        isDryRun
          ? `${counted(told.changes.length, "offset")} would change. Nothing has been changed yet.`
          : `${counted(told.changes.length, "offset")} reset.`,
      );
      act.hidden = !isDryRun || !told.changes.length;
      put(act, `Reset ${counted(told.changes.length, "offset")}`);
      act.onclick = () => send(false, body); // what was shown, whatever the form says by then
      if (!isDryRun) lookNow();
    } catch (error) {
      forget();
      said.className = "bad";
      put(said, error.message);
    }
    act.disabled = false;
  }

  fit();
  return {
    nodes: [make("h3", {}, "Reset offsets"), refused, form, said, shown],
    draw(told) {
      const allowed = may("change");
      const isEmpty = /^(empty|dead)$/i.test(told.state);
      const reason =
        allowed !== true
          ? `Offsets cannot be reset from here: ${allowed}.`
          : isEmpty
            ? ""
            : `Offsets can be reset when the group is empty; it is ${told.state} now.`;
      put(refused, reason);
      form.hidden = Boolean(reason);
      if (reason) forget();
      offer(topic, [["", "all its topics"], ...new Set(told.offsets.map((each) => each.topic))]);
    },
  };
}
