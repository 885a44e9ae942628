// Begin: learn whether there is a console behind the page, then come to where the hash says.

get("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash is the place
  get("main").focus();
});
addEventListener("hashchange", () => arrive());
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && here) look();
});
document.addEventListener("keydown", (event) => {
  const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "");
  const search = document.querySelector("#main section:not([hidden]) input[type=search]");
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey || !search) return;
  event.preventDefault();
  search.focus();
});
setInterval(drawUpdated, UPDATED_PERIOD_MS);

async function start() {
  put(get("about"), "asking…");
  if (placeOf(location.hash).view !== "broker") await lookAtCluster();
  arrive({ isFirst: true });
  await look();
}
start();
