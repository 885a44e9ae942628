// All groups of the cluster, of each kind.

/** What the server calls the columns. */
const GROUP_SORTS = ["group_id", "type", "protocol", "state", "coordinator", "members", "lag"];

views.groups = {
  name: "Groups",
  make(place) {
    if (place.parts.length) return makeGroup(place);
    const [filter, fields, sorted] = filterField(
      "group-filter",
      "Groups with this in their names",
      place,
      { id: "all-groups", names: GROUP_SORTS },
    );
    const sort = () => sortOf("all-groups", GROUP_SORTS);
    return {
      title: "Groups",
      nodes: [
        fields,
        ...table(
          "all-groups",
          "Groups",
          ["Group", "Type", "Protocol", "State", "Coordinator", ["Members"], ["Lag"], "Why?"],
          { level: null, sorted },
        ),
      ],
      periodMs: () => LIST_PERIOD_MS,
      ask: () => askCluster("groups", { filter: filter.value, limit: LIST_MAX, sort: sort() }),
      draw(told) {
        fill(
          "all-groups",
          told.groups.map((each) => [
            groupLink(each.group_id),
            each.type,
            each.protocol,
            each.state,
            broker(each.coordinator ?? -1),
            each.members,
            each.lag === null ? NOT_KNOWN : count(each.lag),
            why([`group ${each.group_id}`, { subject: "group", group: each.group_id }]),
          ]),
        );
        more("all-groups", told.left_out, told.left_out ? "The filter finds them." : "");
      },
    };
  },
};
