// The messages of a topic: from somewhere on, those that match; or live, as they come.

const MESSAGES_SHOWN_MAX = 500;
const READ_TIMEOUT_MS = 30000;
const TAIL_PERIOD_MS = 1000;
const IDLE_PERIOD_MS = 10000;
const SAVE_TIMEOUT_MS = 60000;
const CELL_LENGTH_MAX = 300;
const FORMATS = [
  ["auto", "as it seems"],
  "text",
  ["json", "JSON"],
  "hex",
  ["avro", "Avro"],
  ["protobuf", "Protobuf"],
];
const STARTS = [
  ["last", "the last ones"],
  ["earliest", "the earliest on"],
  ["offset", "an offset on"],
  ["time", "a time on"],
];
const STOPPED = {
  limit: "There may be more.",
  time: "It took too long to look at them all: go on for more.",
  bytes: "So many bytes were looked at: go on for more.",
  records: "So many messages were looked at: go on for more.",
  end: "That is the end.",
};

/** What is in a key, a value or a header, as text. */
function content(told) {
  if (told === null) return "null";
  return told.text + (told.is_cut ? "…" : "");
}

const shortened = (text) => (text.length > CELL_LENGTH_MAX ? `${text.slice(0, CELL_LENGTH_MAX)}…` : text);

function showMessage(topic, message) {
  const part = (name, told) => [
    make("h3", {}, told === null ? name : `${name} (${told.format}, ${bytes(told.bytes)})`),
    make("pre", { tabIndex: 0 }, indented(told)),
  ];
  openDialog(`${topic}-${message.partition} at ${message.offset}`, [
    facts([
      ["Time", `${timeText(message.timestamp_ms)} (${message.timestamp_type})`],
      ["Size", message.size === null ? NOT_KNOWN : bytes(message.size)],
    ]),
    ...part("Key", message.key),
    ...part("Value", message.value),
    ...(message.headers.length
      ? [
          make("h3", {}, "Headers"),
          still(
            ["Name", "Value"],
            message.headers.map(([name, told]) => [name, content(told)]),
          ),
        ]
      : []),
  ]);
}

const isJson = (text) => {
  try {
    return /^\s*[[{]/.test(text) && Boolean(JSON.parse(text));
  } catch (error) {
    if (error instanceof SyntaxError) return false;
    throw error;
  }
};

/** JSON is laid out, with its numbers as they are written; whatever is none, or is cut, stays as it is. */
function indented(told) {
  if (told === null || told.is_cut || !isJson(told.text)) return content(told);
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  return told.text.replace(/"(?:[^"\\]|\\.)*"|[{[]\s*[}\]]|[{}[\],:]|\s+/g, (token) => {
    if (/^\s/.test(token)) return "";
    if (token === ",") return token + line();
    if (token === ":") return ": ";
    if (token === "{" || token === "[") return token + ((depth += 1), line());
    if (token === "}" || token === "]") return ((depth -= 1), line()) + token;
    return token;
  });
}

/** A message as a line of JSON: its key and value as they are shown, as texts, so that no number is rounded. */
function jsonLine(topic, { partition, offset, timestamp_ms, timestamp_type, key, value, headers, size }) {
  return JSON.stringify({
    topic,
    partition,
    offset,
    timestamp_ms,
    timestamp_type,
    key: key && key.text,
    key_format: key && key.format,
    value: value && value.text,
    value_format: value && value.format,
    headers: headers.map(([name, told]) => [name, told && told.text]),
    size,
    is_cut: isCut({ key, value, headers }),
  });
}

const isCut = ({ key, value, headers }) =>
  [key, value, ...headers.map(([, told]) => told)].some((told) => told !== null && told.is_cut);

/** Have the browser save these messages, a line of JSON for each. Returns what is to be said of it. */
function download(topic, messages) {
  const lines = messages.map((each) => `${jsonLine(topic, each)}\n`);
  const url = URL.createObjectURL(new Blob(lines, { type: "application/jsonl" }));
  const name = `${topic}.jsonl`;
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), SAVE_TIMEOUT_MS);
  const cut = messages.filter(isCut).length;
  const lacks = cut ? ` Of ${count(cut)} only the beginning: is_cut is true.` : "";
  return `${counted(messages.length, "message")} saved as ${name}.${lacks}`;
}

function messageRow(topic, each) {
  return [
    {
      value: each.offset,
      press: () => showMessage(topic, each),
      label: `Message ${each.partition}-${each.offset}, whole`,
    },
    each.partition,
    timeText(each.timestamp_ms),
    shortened(content(each.key)),
    shortened(content(each.value)),
    shortened(each.headers.map(([name, told]) => `${name}: ${content(told)}`).join(", ")),
    each.size === null ? null : bytes(each.size),
  ];
}

/** The fields by which messages are chosen, as they are called in the query of the place. */
function messageFields(query) {
  const text = (id, properties = {}) =>
    make("input", {
      id,
      type: "text",
      autocomplete: "off",
      spellcheck: false,
      value: query.get(id) ?? "",
      maxLength: 1000,
      ...properties,
    });
  const chosen = (id, options, usual) => {
    const made = select(id, options);
    made.value = query.get(id) ?? usual;
    if (made.selectedIndex < 0) made.value = usual;
    return made;
  };
  const [start, ...rest] = (query.get("from") ?? "last:50").split(":");
  const from = select("from", STARTS);
  from.value = start;
  if (from.selectedIndex < 0) from.value = "last";
  const at = rest.join(":");
  const controls = {
    from,
    number: make("input", {
      id: "number",
      type: "number",
      min: "0",
      value: from.value === "time" ? "" : at || "50",
    }),
    time: make("input", { id: "time", type: "datetime-local", step: "1" }),
    partition: chosen(
      "partition",
      [["", "all"], ...(query.get("partition") ? [query.get("partition")] : [])],
      "",
    ),
    key: text("key"),
    header: text("header", { placeholder: "name or name=text" }),
    contains: text("contains"),
    format: chosen("format", FORMATS, "auto"),
    isolation: make("input", {
      id: "read-committed",
      type: "checkbox",
      checked: query.get("read_committed") === "true",
    }),
    limit: chosen("limit", ["20", "50", "100", "200"], "50"),
  };
  if (from.value === "time" && at) controls.time.value = localTime(Number(at));
  return controls;
}

/** Milliseconds as a field for a local time wants them. */
function localTime(ms) {
  const local = new Date(ms - new Date(ms).getTimezoneOffset() * 60000);
  return Number.isNaN(local.getTime()) ? "" : local.toISOString().slice(0, 19);
}

function fromOf({ from, number, time }) {
  if (from.value === "earliest") return "earliest";
  if (from.value === "time") return `time:${time.value ? new Date(time.value).getTime() : 0}`;
  return `${from.value}:${number.value || 0}`;
}

function messagesForm(controls, submit) {
  const numberField = field("How many, or which", controls.number);
  const timeField = field("Time", controls.time);
  function fit() {
    numberField.hidden = !/^(last|offset)$/.test(controls.from.value);
    put(numberField.firstElementChild, controls.from.value === "last" ? "How many" : "Offset");
    timeField.hidden = controls.from.value !== "time";
  }
  controls.from.addEventListener("change", fit);
  fit();
  return make(
    "form",
    {
      onsubmit: (event) => {
        event.preventDefault();
        submit();
      },
    },
    make(
      "div",
      { className: "fields" },
      field("From", controls.from),
      numberField,
      timeField,
      field("Partition", controls.partition),
      field("Key is", controls.key),
      field("Header", controls.header),
      field("Key or value has", controls.contains),
      field("Shown as", controls.format),
      field("At most", controls.limit),
      field("committed only", controls.isolation, { className: "field check" }),
    ),
  );
}

/** What is asked for, by the names of api/messages. */
const chosenOf = (controls) => ({
  from: fromOf(controls),
  partition: controls.partition.value,
  key: controls.key.value,
  header: controls.header.value,
  contains: controls.contains.value,
  format: controls.format.value,
  limit: controls.limit.value,
  read_committed: controls.isolation.checked ? "true" : "",
});

function makeMessages(topic, place) {
  const controls = messageFields(place.query);
  const reading = { query: null, next: null, isWanted: true, isTail: false, shown: [] };
  const said = make("p", { id: "messages-said", className: "quiet", role: "status" });
  const tail = button("Live", () => (reading.isTail ? pause() : follow()), { id: "tail" });
  const onward = button(
    "More",
    () => {
      reading.isWanted = true;
      lookNow();
    },
    { id: "more", hidden: true },
  );
  const save = button("Download", () => put(said, download(topic, reading.shown)), {
    id: "download",
    title: `What is shown, at most ${MESSAGES_SHOWN_MAX} messages, as lines of JSON`,
    hidden: true,
  });
  const form = messagesForm(controls, read);
  form.firstElementChild.append(make("button", { id: "read" }, "Read"), onward, tail, save);
  let areOffered = false;

  function begin(query) {
    Object.assign(reading, { query, next: null, isWanted: true, shown: [] });
    if (get("messages")) fill("messages", []);
    save.hidden = true;
    put(said, "Reading…");
    lookNow();
  }

  function read() {
    setTail(false);
    const query = chosenOf(controls);
    keep({
      ...query,
      format: query.format === "auto" ? "" : query.format,
      limit: query.limit === "50" ? "" : query.limit,
    });
    begin(query);
  }

  function setTail(isTail) {
    reading.isTail = isTail;
    tail.ariaPressed = String(isTail);
    put(tail, isTail ? "Pause" : "Live");
  }

  /** Go on after a pause, or begin with what comes from now on. */
  function follow() {
    const query = { ...chosenOf(controls), from: "latest" };
    const isSame =
      reading.query !== null &&
      reading.next !== null &&
      JSON.stringify(query) === JSON.stringify(reading.query);
    setTail(true);
    onward.hidden = true;
    if (isSame) lookNow();
    else begin(query);
  }

  function pause() {
    setTail(false);
    put(said, `Paused. ${said.textContent}`);
  }

  function say(told) {
    const looked =
      `${counted(reading.shown.length, "message")} shown; ${count(told.scanned)} looked at ` +
      `(${bytes(told.scanned_bytes)}).`;
    put(said, reading.isTail ? `Live. ${looked}` : `${looked} ${STOPPED[told.stopped_by] ?? ""}`);
    const skipped = (told.skipped ?? []).map((each) =>
      each.offset < 0 ? each.why : `${each.partition}-${each.offset} to ${each.last_offset}: ${each.why}`,
    );
    more("messages", 0, skipped.length ? `Not shown: ${skipped.join("; ")}.` : "");
  }

  const whyFetch = button("Why does a consumer get nothing?", () => {
    const partition = controls.partition.value || "0";
    askWhy([[`a fetch from ${topic}-${partition}`, { subject: "fetch", topic, partition }]]);
  });
  const refused = make("p", { id: "messages-refused", className: "note" });
  const noRegistry = make("p", { className: "note" });
  return {
    periodMs: () => (reading.isTail ? TAIL_PERIOD_MS : IDLE_PERIOD_MS),
    nodes: [
      refused,
      form,
      said,
      ...table(
        "messages",
        "Messages",
        [["Offset"], ["Partition"], "Time", "Key", "Value", "Headers", ["Size"]],
        { level: null },
      ),
      make("p", { className: "buttons" }, whyFetch),
      noRegistry,
    ],
    async ask() {
      const allowed = may("messages");
      if (allowed !== true) return { allowed };
      const about = areOffered ? null : askCluster("topic", { name: topic });
      if (!reading.isWanted && !reading.isTail) return { about: await about };
      reading.query ??= chosenOf(controls);
      const query = { topic, ...reading.query, next: reading.next };
      const mine = reading.query;
      try {
        const told = await askCluster("messages", query, { timeoutMs: READ_TIMEOUT_MS });
        return { told, mine, about: await about };
      } catch (error) {
        reading.isWanted = false;
        setTail(false);
        put(said, "");
        throw error;
      }
    },
    draw({ allowed, told, mine, about }) {
      const registry = may("registry");
      put(refused, allowed ? `Messages are not shown: ${allowed}.` : "");
      put(noRegistry, registry === true ? "" : `Avro and Protobuf cannot be shown: ${registry}.`);
      for (const each of controls.format.options) {
        each.disabled = registry !== true && /^(avro|protobuf)$/.test(each.value);
      }
      form.hidden = Boolean(allowed);
      if (about) {
        offer(controls.partition, [["", "all"], ...about.partitions.map((each) => String(each.partition))]);
        areOffered = true;
      }
      if (!told || mine !== reading.query) return;
      reading.isWanted = false;
      reading.next = told.next;
      const isNewestFirst = reading.query.from === "latest";
      const shown = isNewestFirst
        ? [...[...told.messages].reverse(), ...reading.shown]
        : [...reading.shown, ...told.messages];
      reading.shown = isNewestFirst ? shown.slice(0, MESSAGES_SHOWN_MAX) : shown.slice(-MESSAGES_SHOWN_MAX);
      onward.hidden = reading.isTail || told.is_end || !told.next;
      save.hidden = !reading.shown.length;
      fill(
        "messages",
        reading.shown.map((each) => messageRow(topic, each)),
      );
      say(told);
    },
  };
}
