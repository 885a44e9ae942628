// Who may do what, and how much: ACLs, users and quotas.

views.access = {
  name: "Access",
  make: () => ({
    title: "ACLs, users and quotas",
    nodes: [
      ...table("acls", "ACLs", [
        "Principal",
        "Permission",
        "Operation",
        "Resource",
        "Name",
        "Pattern",
        "Host",
      ]),
      ...table("users", "Users with passwords (SCRAM)", ["User", "Mechanisms", "Why?"]),
      ...table("quotas", "Quotas", ["Entity", "Quota", ["Bound"]]),
    ],
    ask: () => askCluster("access"),
    draw(told) {
      fill(
        "acls",
        (told.acls ?? []).map((each) => [
          each.principal,
          bad(each.permission, /^deny$/i.test(each.permission)),
          each.operation,
          each.resource_type,
          each.name,
          each.pattern_type,
          each.host,
        ]),
      );
      more("acls", told.acls_left_out ?? 0, told.why_no_acls ?? "");
      fill(
        "users",
        (told.users ?? []).map((each) => [
          each.name,
          list(each.mechanisms),
          why([`user ${each.name}`, { subject: "client", user: each.name }]),
        ]),
      );
      more("users", 0, told.why_no_users ?? "");
      fill(
        "quotas",
        told.quotas.map((each) => [each.entity, each.quota, boundText(each)]),
      );
      more("quotas", told.quotas_left_out ?? 0);
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
