// Who may do what, and how much: ACLs, users and quotas.

views.access = {
  name: "Access",
  make: () => ({
    title: "ACLs, users and quotas",
    nodes: [
      ...table(
        "acls",
        "ACLs",
        ["Principal", "Permission", "Operation", "Resource", "Name", "Pattern", "Host"],
        { sorted: true },
      ),
      ...table("users", "Users with passwords (SCRAM)", ["User", "Mechanisms", "Why?"], { sorted: true }),
      ...table("quotas", "Quotas", ["Entity", "Quota", ["Bound"]], { sorted: true }),
    ],
    ask: () => askCluster("access"),
    draw(told) {
      const rows = (id, row) => {
        fill(id, told[id] ? told[id].map(row) : [[NOT_KNOWN]]);
        const reason = told[`why_no_${id}`];
        more(id, told[`${id}_left_out`] ?? 0, reason ? sentenceOf(reason) : "");
      };
      rows("acls", (each) => [
        each.principal,
        bad(each.permission, /^deny$/i.test(each.permission)),
        each.operation,
        each.resource_type,
        each.name,
        each.pattern_type,
        each.host,
      ]);
      rows("users", (each) => [
        each.name,
        list(each.mechanisms),
        why([`user ${each.name}`, { subject: "client", user: each.name }]),
      ]);
      rows("quotas", (each) => [each.entity, each.quota, by(each.value, boundText(each))]);
    },
    periodMs: () => CLUSTER_PERIOD_MS,
  }),
};

const boundText = ({ quota, value }) =>
  /byte_rate$/.test(quota)
    ? `${bytes(value)}/s`
    : /percentage$/.test(quota)
      ? `${rounded(value)} %`
      : rounded(value);
