"use strict";
// What all the others use: elements, and questions to the server.
//
// Names of topics, groups, clients and whatever is in a record are others' own choice: they go into the page
// as text only, never as markup. Elements are made by `make`, which sets properties.

const get = (id) => document.getElementById(id);
const list = (numbers) => numbers.join(", ");
const broker = (id) => (id < 0 ? "none" : `broker ${id}`);

/** An element with these properties (as the DOM calls them) and these children; null is no child. */
function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children.filter((each) => each !== null));
  return made;
}

/** Change a text only when it is another, else a selection in it would be lost. */
function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function button(text, press, properties = {}) {
  return make("button", { type: "button", textContent: text, onclick: press, ...properties });
}

/** A control below its label. */
function field(label, control, properties = {}) {
  return make("label", { className: "field", ...properties }, make("span", {}, label), control);
}

/** Options are texts, or pairs of a value and a text. */
function select(id, options, properties = {}) {
  const choices = options.map((each) => (Array.isArray(each) ? each : [each, each]));
  return make(
    "select",
    { id, ...properties },
    ...choices.map(([value, text]) => make("option", { value, textContent: text })),
  );
}

/** Have a select offer these, and keep what is chosen where it is still there. */
function offer(control, options) {
  const told = JSON.stringify(options);
  if (control.dataset.offered === told) return;
  const chosen = control.value;
  control.replaceChildren(...select("", options).children);
  control.dataset.offered = told;
  if ([...control.options].some((each) => each.value === chosen)) control.value = chosen;
}

const ANSWER_TIMEOUT_MS = 10000;
const REASON_LENGTH_MAX = 400;

/** The server said no, and why. */
class Refusal extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

/** The JSON at a path relative to the page. Throws a Refusal, or what fetch throws when nobody answers. */
async function ask(path, { timeoutMs = ANSWER_TIMEOUT_MS, ...options } = {}) {
  const page = location.origin + location.pathname; // not the credentials that the address may have
  const response = await fetch(new URL(path, page), {
    cache: "no-store",
    signal: AbortSignal.timeout(timeoutMs),
    ...options,
  });
  if (!response.ok) {
    const reason = (await response.text()).trim().slice(0, REASON_LENGTH_MAX);
    throw new Refusal(response.status, reason || `status ${response.status}`);
  }
  return response.json();
}

/** The same of what is below api/; arguments that are empty or null are left out. */
function askCluster(path, query = {}, options = {}) {
  const told = Object.entries(query).filter(
    ([, value]) => value !== null && value !== undefined && value !== "",
  );
  const search = new URLSearchParams(told).toString();
  return ask(`api/${path}${search && `?${search}`}`, options);
}

/** Have the cluster changed. It takes longer than a look. */
function change(path, body) {
  const headers = { "Content-Type": "application/json" };
  return ask(`api/${path}`, { method: "POST", headers, body: JSON.stringify(body), timeoutMs: 30000 });
}
