// Numbers as people read them.

const NOT_KNOWN = "not known";
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

const rounded = (value) => (value === null ? "" : String(Math.round(value * 100) / 100));
const count = (value) => (value === null || value === undefined ? NOT_KNOWN : value.toLocaleString("en"));

/** 1,536 is 1.5 KiB: three digits, and a unit. */
function bytes(value) {
  if (value === null || value === undefined) return NOT_KNOWN;
  const power = Math.min(UNITS.length - 1, Math.floor(Math.log2(Math.max(1, value)) / 10));
  const shown = value / 1024 ** power;
  return `${power && shown < 100 ? shown.toFixed(1) : Math.round(shown)} ${UNITS[power]}`;
}

const perSecond = (rate, shown) => (rate === null ? "" : `${shown(rate)}/s`);
const decimal = (value) => (value < 10 ? rounded(value) : count(Math.round(value)));

/** 93,784,000 ms are 1 d 2 h: the two largest units. */
function duration(ms) {
  if (ms === null || ms === undefined) return NOT_KNOWN;
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = Math.floor(ms / 1000);
  const parts = [
    ["d", 86400],
    ["h", 3600],
    ["min", 60],
    ["s", 1],
  ].map(([unit, size], index, all) => [
    Math.floor((index ? seconds % all[index - 1][1] : seconds) / size),
    unit,
  ]);
  const first = parts.findIndex(([number]) => number > 0);
  return parts
    .slice(first, first + 2)
    .filter(([number]) => number)
    .map((each) => each.join(" "))
    .join(" ");
}

const timeText = (ms) => (ms === null || ms === undefined || ms < 0 ? "none" : new Date(ms).toISOString());

const counted = (number, one) => `${count(number)} ${one}${number === 1 ? "" : "s"}`;
