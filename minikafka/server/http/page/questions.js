// A form to ask why of anything, also of what no table has a row for: a transaction, a client.

/** Subjects with the fields that they take; * is one that must be there. */
const SUBJECTS = {
  transaction: ["transactional_id*"],
  client: ["client_id", "user", "host"],
  partition: ["topic*", "partition*"],
  fetch: ["topic*", "partition*", "offset"],
  produce: ["topic*", "partition", "client_id"],
  group: ["group*"],
  topic: ["topic*"],
  reassignment: ["topic", "partition"],
  broker: ["broker*"],
};

views.why = {
  name: "Why?",
  make(place) {
    const choice = select("why-subject", Object.keys(SUBJECTS), { onchange: offerFields });
    const fields = make("div", { className: "fields" });
    const isolation = make("input", { type: "checkbox", id: "why-read-committed" });
    function offerFields() {
      fields.replaceChildren(
        field("Subject", choice),
        ...SUBJECTS[choice.value].map((each) => {
          const name = each.replace("*", "");
          const isNumber = /^(partition|offset|broker)$/.test(name);
          return field(
            name.replace(/_/g, " "),
            make("input", {
              id: `why-${name}`,
              name,
              required: each.endsWith("*"),
              autocomplete: "off",
              ...(isNumber ? { type: "number", min: "0" } : { maxLength: 249, spellcheck: false }),
            }),
          );
        }),
        ...(choice.value === "fetch" ? [field("read committed", isolation)] : []),
        make("button", {}, "Ask why"),
      );
    }
    if (Object.hasOwn(SUBJECTS, place.query.get("subject") ?? "")) choice.value = place.query.get("subject");
    offerFields();
    const form = make(
      "form",
      {
        onsubmit(event) {
          event.preventDefault();
          const told = Object.fromEntries(
            [...fields.querySelectorAll("input[name]")]
              .filter((each) => each.value)
              .map((each) => [each.name, each.value]),
          );
          const about = Object.values(told).join(" ") || "all of them";
          const more = choice.value === "fetch" && isolation.checked ? { read_committed: true } : {};
          askWhy([[`${choice.value}: ${about}`, { subject: choice.value, ...told, ...more }]]);
        },
      },
      fields,
    );
    return {
      title: "Why is it so?",
      nodes: [
        make(
          "p",
          { className: "quiet" },
          "Topics, partitions, groups, brokers and reassignments have a button " +
            "“why?” where they are listed. This asks about anything, also about a transaction or a client; " +
            "about the tables of an export the command does: minikafka why table.",
        ),
        form,
      ],
      ask: async () => null,
      draw: () => "",
    };
  },
};
