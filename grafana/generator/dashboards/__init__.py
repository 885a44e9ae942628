"""The dashboards, one module each."""

from __future__ import annotations

from grafana.generator.board import Dashboard
from grafana.generator.dashboards.broker import BROKER_DASHBOARD
from grafana.generator.dashboards.cluster import CLUSTER_DASHBOARD
from grafana.generator.dashboards.groups import GROUPS_DASHBOARD
from grafana.generator.dashboards.quotas import QUOTAS_DASHBOARD
from grafana.generator.dashboards.replication import REPLICATION_DASHBOARD
from grafana.generator.dashboards.requests import REQUESTS_DASHBOARD
from grafana.generator.dashboards.security import SECURITY_DASHBOARD
from grafana.generator.dashboards.share_and_streams import SHARE_AND_STREAMS_DASHBOARD
from grafana.generator.dashboards.spark import SPARK_DASHBOARD
from grafana.generator.dashboards.topics import TOPICS_DASHBOARD
from grafana.generator.dashboards.transactions import TRANSACTIONS_DASHBOARD

DASHBOARDS: tuple[Dashboard, ...] = (
    CLUSTER_DASHBOARD,
    BROKER_DASHBOARD,
    TOPICS_DASHBOARD,
    REQUESTS_DASHBOARD,
    REPLICATION_DASHBOARD,
    QUOTAS_DASHBOARD,
    GROUPS_DASHBOARD,
    SHARE_AND_STREAMS_DASHBOARD,
    TRANSACTIONS_DASHBOARD,
    SECURITY_DASHBOARD,
    SPARK_DASHBOARD,
)
