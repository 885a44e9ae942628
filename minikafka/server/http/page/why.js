// "Why?": what `minikafka why` answers, in the dialog.

const WHY_TIMEOUT_MS = 20000;
let whyNumber = 0;

/** A button in a cell that asks why. `questions`: of a name and the arguments of api/why, the first is asked. */
function why(...questions) {
  return { value: "why?", label: `Why is it so: ${questions[0][0]}`, press: () => askWhy(questions) };
}

const whyPartition = (topic, partition) => why(
  [`partition ${topic}-${partition}`, { subject: "partition", topic, partition }],
  [`a fetch from ${topic}-${partition}`, { subject: "fetch", topic, partition }],
  [`a produce to ${topic}-${partition}`, { subject: "produce", topic, partition }],
);

async function askWhy(questions, index = 0) {
  const [name, query] = questions[index];
  const number = ++whyNumber;
  const others = questions.map(([other], place) => place === index || questions.length === 1 ? null
    : button(`Ask about ${other}`, () => askWhy(questions, place))).filter((each) => each !== null);
  openDialog(`Why? ${name}`, [make("p", { role: "status" }, "The brokers are asked…")], others);
  let nodes;
  try {
    nodes = answerNodes(await askCluster("why", query, { timeoutMs: WHY_TIMEOUT_MS }));
  } catch (error) {
    nodes = [make("p", { className: "bad", role: "status" }, error.message)];
  }
  if (number === whyNumber && get("dialog").open) get("dialog-content").replaceChildren(...nodes);
}

const sentenceOf = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

function answerNodes(answer) {
  const sentence = make("p", { id: "why-sentence", role: "status" }, make("strong", {}, sentenceOf(answer.sentence)));
  const reasons = answer.reasons.flatMap((reason, index) => [
    index ? make("p", {}, make("strong", {}, sentenceOf(reason.sentence))) : null,
    ...evidenceNodes(reason.evidence),
    reason.remedy ? make("p", { className: "good" }, `To change it: ${reason.remedy}`) : null,
    make("p", { className: "quiet" }, "Explained in ", make("code", {}, reason.page)),
  ].filter((each) => each !== null));
  const unknown = (answer.unknown ?? []).map((each) => make("p", { className: "quiet" }, `Not known: ${each}.`));
  return [sentence, ...reasons, ...unknown];
}

const isRows = (value) => Array.isArray(value) && value.length > 0 && value[0] !== null && typeof value[0] === "object";

/** A value of some evidence as text; its name says what it is. */
function evidenceText(name, value) {
  if (value === null || value === undefined) return "none";
  if (Array.isArray(value)) return value.join(", ") || "none";
  if (typeof value === "object") return JSON.stringify(value);
  if (typeof value !== "number") return String(value);
  if (/ ms\b/.test(name)) return duration(value);
  return /\bbytes\b/.test(name) ? bytes(value) : count(value);
}

function evidenceNodes(evidence) {
  const pairs = Object.entries(evidence ?? {});
  const plain = pairs.filter(([, value]) => !isRows(value));
  const rows = pairs.filter(([, value]) => isRows(value));
  return [
    ...(plain.length ? [facts(plain.map(([name, value]) => [name.replace(/ ms\b/, ""), evidenceText(name, value)]))] : []),
    ...rows.flatMap(([name, value]) => {
      const columns = [...new Set(value.flatMap((each) => Object.keys(each)))];
      return [make("p", {}, name), still(columns.map((each) => each.replace(/ ms\b/, "")),
        value.map((each) => columns.map((column) => evidenceText(column, each[column]))))];
    }),
  ];
}

/** What no table has a row for: subjects with the fields that they take; * is one that must be there. */
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
      fields.replaceChildren(field("Subject", choice), ...SUBJECTS[choice.value].map((each) => {
        const name = each.replace("*", "");
        const isNumber = /^(partition|offset|broker)$/.test(name);
        return field(name.replace(/_/g, " "), make("input", {
          id: `why-${name}`, name, required: each.endsWith("*"), autocomplete: "off",
          ...(isNumber ? { type: "number", min: "0" } : { maxLength: 249, spellcheck: false }),
        }));
      }), ...(choice.value === "fetch" ? [field("read committed", isolation)] : []), make("button", {}, "Ask why"));
    }
    if (Object.hasOwn(SUBJECTS, place.query.get("subject") ?? "")) choice.value = place.query.get("subject");
    offerFields();
    const form = make("form", {
      onsubmit(event) {
        event.preventDefault();
        const told = Object.fromEntries([...fields.querySelectorAll("input[name]")]
          .filter((each) => each.value).map((each) => [each.name, each.value]));
        const about = Object.values(told).join(" ") || "all of them";
        const more = choice.value === "fetch" && isolation.checked ? { read_committed: true } : {};
        askWhy([[`${choice.value}: ${about}`, { subject: choice.value, ...told, ...more }]]);
      },
    }, fields);
    return {
      title: "Why is it so?",
      nodes: [
        make("p", { className: "quiet" }, "Topics, partitions, groups, brokers and reassignments have a button " +
          "“why?” where they are listed. This asks about anything, also about a transaction or a client."),
        form,
      ],
      ask: async () => null,
      draw: () => "",
    };
  },
};
