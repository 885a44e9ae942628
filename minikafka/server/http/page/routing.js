// Where one is is in the hash: #/, #/topics/NAME/messages?from=earliest. A place is drawn by a view, which is
// made when one comes there and then looks again and again.

const PERIOD_MS = 2000;
const CLUSTER_PERIOD_MS = 10000;
const UPDATED_PERIOD_MS = 1000;

/**
 * Views by the first part of the hash. Each is {name, make}, and has isOfMinikafka where Apache Kafka has
 * nothing to tell. `make(place)` returns what is at a place:
 *   title       its heading
 *   nodes       what it consists of
 *   ask         async: what is to be drawn. Not drawn when one is somewhere else by then.
 *   draw        draws it, and returns what is amiss, or nothing
 *   periodMs    until it is asked again, a function; else PERIOD_MS
 *   isOwn       it has its own section in the document, and its own title
 */
const views = {};

/** What api/cluster said last; null before. False: there is no console, so the broker's own page is all. */
let cluster = null;
let clusterAskedAt = -Infinity;
let clusterError = "";

let here = null; // the place, with what its view made of it
let timer = 0;
let asked = 0;
let updatedAt = 0;

/** "#/topics/a%2Fb?x=1" is {view: "topics", parts: ["a/b"], query}. */
function placeOf(hash) {
  const [path, search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").map((each) => {
    try {
      return decodeURIComponent(each);
    } catch (error) {
      if (error instanceof URIError) return each; // somebody wrote it by hand
      throw error;
    }
  });
  return { view: parts[0], parts: parts.slice(1), query: new URLSearchParams(search), hash };
}

/** The hash of a place. */
function hashOf(...parts) {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

/** Keep in the hash what was chosen in a view, without a step in the history. */
function keep(query) {
  const told = Object.entries(query).filter(([, value]) => value !== "" && value !== null);
  const search = new URLSearchParams(told).toString();
  const hash = here.place.hash.split("?")[0] || "#/";
  here.place = placeOf(search ? `${hash}?${search}` : hash);
  history.replaceState(null, "", here.place.hash);
}

/** Whether one may: true, or the reason why not. */
function may(what) {
  if (!cluster) return "it is not known yet";
  return cluster.can?.[what] ?? "the server does not say that it can";
}

function drawNavigation() {
  const nav = get("views");
  nav.hidden = !cluster;
  const isOffered = ([id, view]) =>
    view.name &&
    (id !== "broker" || cluster?.asked_of !== null) &&
    (!view.isOfMinikafka || cluster?.software !== null);
  const offered = Object.entries(views).filter(isOffered);
  if (nav.childElementCount !== offered.length) {
    nav.replaceChildren(
      ...offered.map(([id, view]) => make("a", { href: hashOf(id), textContent: view.name })),
    );
  }
  offered.forEach(([id], index) => {
    nav.children[index].ariaCurrent = here?.place.view === id ? "page" : null;
  });
}

/** Come to the place that the hash says. */
function arrive({ isFirst = false } = {}) {
  const place = placeOf(location.hash);
  if (cluster === false) place.view = "broker"; // all there is
  if (here && here.place.hash === place.hash && here.place.view === place.view) return;
  if (!Object.hasOwn(views, place.view)) place.view = "";
  here = { place, ...views[place.view].make(place) };
  const isOwn = Boolean(here.isOwn);
  get("this-broker").hidden = !isOwn;
  get("view").hidden = isOwn;
  get("view").replaceChildren(
    ...(isOwn ? [] : [make("h2", { id: "view-title", tabIndex: -1 }, here.title), ...here.nodes]),
  );
  if (!isOwn) document.title = `${here.title} · ${cluster ? (cluster.software ?? "Kafka") : "console"}`;
  get("dialog").close(); // it was about the place before
  put(get("trouble"), "");
  get("main").ariaBusy = "true"; // until it is drawn
  drawNavigation();
  if (!isFirst) {
    scrollTo(0, 0);
    (isOwn ? get("main") : get("view-title")).focus({ preventScroll: true });
  }
  if (!isFirst) look();
}

/** Ask about the cluster when it is due: in its own view each time. */
async function lookAtCluster() {
  const isDue = here?.place.view === "" || performance.now() - clusterAskedAt >= CLUSTER_PERIOD_MS;
  if (cluster === false || !isDue) return;
  clusterAskedAt = performance.now();
  try {
    cluster = await askCluster("cluster");
    clusterError = "";
    remember(cluster);
  } catch (error) {
    if (error instanceof Refusal && error.status === 404 && !cluster) cluster = false;
    else clusterError = error.message;
  }
}

function drawHeader() {
  if (!cluster || here.isOwn) return;
  put(get("title"), `${cluster.software ?? "Kafka"}, cluster ${cluster.cluster_id}`);
  const of = cluster.asked_of === null ? "" : `asked of broker ${cluster.asked_of} · `;
  put(get("about"), `${of}controller: ${broker(cluster.controller_id ?? -1)}`);
}

async function look() {
  clearTimeout(timer);
  const number = ++asked; // an answer that a newer question has overtaken is not drawn
  const mine = here;
  let trouble = "";
  let isStale = false;
  try {
    const asking = lookAtCluster();
    if (mine.isOwn) asking.then(drawNavigation); // a broker's own view waits for no other broker
    const [told] = await Promise.all([mine.ask(), mine.isOwn ? null : asking]);
    if (number !== asked || mine !== here) return;
    drawHeader();
    drawNavigation();
    trouble = mine.draw(told) || "";
    get("main").ariaBusy = "false";
    updatedAt = performance.now();
    if (clusterError && !mine.isOwn) trouble = trouble || `The cluster could not be asked: ${clusterError}`;
  } catch (error) {
    if (number !== asked || mine !== here) return;
    if (cluster === false && !mine.isOwn) return arrive(); // there is no console after all
    isStale = true;
    trouble =
      error instanceof Refusal && !mine.isOwn
        ? error.message
        : `This is not what is now: the broker does not answer (${error.message}).`;
  }
  document.body.classList.toggle("stale", isStale);
  put(get("trouble"), trouble);
  drawUpdated();
  if (!document.hidden) timer = setTimeout(look, mine.periodMs?.() ?? PERIOD_MS);
}

/** Look now, and not only when it is due. */
const lookNow = () => look();

function drawUpdated() {
  if (updatedAt) put(get("updated"), `updated ${Math.round((performance.now() - updatedAt) / 1000)} s ago`);
}
