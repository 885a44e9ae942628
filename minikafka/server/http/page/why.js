// "Why?": what `minikafka why` answers, in the dialog.

const WHY_TIMEOUT_MS = 20000;
let whyNumber = 0;

/** A button in a cell that asks why. `questions`: a name and the arguments of api/why; the first is asked. */
function why(...questions) {
  return { value: "why?", label: `Why is it so: ${questions[0][0]}`, press: () => askWhy(questions) };
}

/** What a partition may be asked beside what is wrong with it, as `minikafka why partition` calls it. */
const PARTITION_QUESTIONS = {
  "not-compacted": "that is not compacted",
  "not-deleted": "that is not deleted by retention",
  growing: "that grows",
  "unevenly-read": "that is read unevenly",
};

const whyPartition = (topic, partition) =>
  why(
    [`partition ${topic}-${partition}`, { subject: "partition", topic, partition }],
    [`a fetch from ${topic}-${partition}`, { subject: "fetch", topic, partition }],
    [`a produce to ${topic}-${partition}`, { subject: "produce", topic, partition }],
    ...Object.entries(PARTITION_QUESTIONS).map(([question, name]) => [
      `${topic}-${partition} ${name}`,
      { subject: "partition", topic, partition, question },
    ]),
  );

async function askWhy(questions, index = 0) {
  const [name, query] = questions[index];
  const number = ++whyNumber;
  const others = questions
    .map(([other], place) =>
      place === index || questions.length === 1
        ? null
        : button(`Ask about ${other}`, () => askWhy(questions, place)),
    )
    .filter((each) => each !== null);
  openDialog(`Why? ${name}`, [make("p", { role: "status" }, "The brokers are asked…")], others);
  let nodes;
  try {
    nodes = answerNodes(await askCluster("why", query, { timeoutMs: WHY_TIMEOUT_MS }));
  } catch (error) {
    nodes = [make("p", { className: "bad", role: "status" }, error.message)];
  }
  if (number === whyNumber && get("dialog").open) get("dialog-content").replaceChildren(...nodes);
}

/** With which our sentences begin, and names mostly do not: a name stays as it is. */
const OUR_WORDS =
  /^(a|all|broker|group|it|no|nobody|nothing|read_committed|the|there|topic|waiting|what|you) /;

const sentenceOf = (text) =>
  (OUR_WORDS.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text) +
  (/[.!?]$/.test(text) ? "" : ".");

function answerNodes(answer) {
  const sentence = make(
    "p",
    { id: "why-sentence", role: "status" },
    make("strong", {}, sentenceOf(answer.sentence)),
  );
  const reasons = answer.reasons.flatMap((reason, index) =>
    [
      index ? make("p", {}, make("strong", {}, sentenceOf(reason.sentence))) : null,
      ...evidenceNodes(reason.evidence),
      reason.remedy ? make("p", { className: "good" }, `To change it: ${reason.remedy}`) : null,
      make("p", { className: "quiet" }, "Explained in ", make("code", {}, reason.page)),
    ].filter((each) => each !== null),
  );
  const unknown = (answer.unknown ?? []).map((each) =>
    make("p", { className: "quiet" }, `Not known: ${each}.`),
  );
  return [sentence, ...reasons, ...unknown];
}

const isRows = (value) =>
  Array.isArray(value) && value.length > 0 && value[0] !== null && typeof value[0] === "object";

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
    ...(plain.length
      ? [facts(plain.map(([name, value]) => [name.replace(/ ms\b/, ""), evidenceText(name, value)]))]
      : []),
    ...rows.flatMap(([name, value]) => {
      const columns = [...new Set(value.flatMap((each) => Object.keys(each)))];
      return [
        make("p", {}, name),
        still(
          columns.map((each) => each.replace(/ ms\b/, "")),
          value.map((each) => columns.map((column) => evidenceText(column, each[column]))),
        ),
      ];
    }),
  ];
}
