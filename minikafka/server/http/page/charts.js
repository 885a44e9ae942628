// Lines of what was measured. The template has the SVG, whose namespace is the parser's; points are set here.

const CHART_WIDTH = 100;
const CHART_HEIGHT = 24;

/** An empty line, which drawLine draws. */
function line(className) {
  const made = get("line").content.firstElementChild.cloneNode(true);
  made.classList.add(className);
  return made;
}

/** A line through pairs of a place from left to right and a value, from 0 to the most; null is left out. */
function drawLine(svg, pairs, label) {
  const known = pairs.filter(([, value]) => value !== null);
  const points = svg.querySelector("polyline").points;
  points.clear();
  svg.ariaLabel = label;
  if (known.length < 2) return;
  const [start, end] = [known[0][0], known[known.length - 1][0]];
  const most = Math.max(...known.map(([, value]) => value)) || 1;
  for (const [at, value] of known) {
    const point = svg.createSVGPoint();
    point.x = end === start ? CHART_WIDTH : ((at - start) / (end - start)) * CHART_WIDTH;
    point.y = CHART_HEIGHT - 1 - (value / most) * (CHART_HEIGHT - 2);
    points.appendItem(point);
  }
}

const TIMELINE_MS = 15 * 60 * 1000;

/** A row for each kind of event, over the last minutes; now is at the right. */
function drawTimeline(element, events, now) {
  const recent = events.filter((each) => each.at_ms > now - TIMELINE_MS);
  const kinds = [...new Set(recent.map((each) => each.kind))].sort();
  element.replaceChildren(
    ...kinds.flatMap((kind) => {
      const track = make("div", { className: "track" });
      for (const each of recent.filter((each) => each.kind === kind)) {
        const title = `${timeText(each.at_ms)} ${each.subject}: ${each.text}`;
        const dot = track.appendChild(make("span", { title, className: each.isBad ? "bad" : "" }));
        dot.style.left = `${100 - ((now - each.at_ms) / TIMELINE_MS) * 100}%`;
      }
      return [make("span", {}, kind), track];
    }),
  );
}
