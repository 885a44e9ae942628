"""The list of series is what Prometheus and the dashboards can rely on."""

from __future__ import annotations

import re

import pytest

from minikafka.metrics.names import ALL_SERIES
from minikafka.metrics.series import SPARK_SERIES, Series, SeriesType


def test_no_name_is_given_twice() -> None:
    names = [series.name for series in (*ALL_SERIES, *SPARK_SERIES)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("series", (*ALL_SERIES, *SPARK_SERIES), ids=lambda series: series.name)
def test_a_series_has_a_valid_name_labels_and_help(series: Series) -> None:
    assert re.fullmatch(r"(kafka|minikafka)_[a-z0-9_]+", series.name)
    assert all(re.fullmatch(r"[a-zA-Z_]+", label) for label in series.labels)
    assert series.help.endswith(".") or series.type is SeriesType.SUMMARY
    assert not series.name.endswith("_total")
    assert series.sample.endswith("_total") == (series.type is SeriesType.COUNTER)
    assert ("quantile" in series.labels[-1:]) == (series.type is SeriesType.SUMMARY)


@pytest.mark.parametrize(
    "series", [each for each in ALL_SERIES if each.mbean], ids=lambda series: series.name
)
def test_a_name_is_what_strimzis_rules_make_of_the_mbean(series: Series) -> None:
    domain, _, rest = series.mbean.partition(":")
    keys = dict(
        part.split("=", 1) for part in rest.replace(",attribute ", ",name=").split(",") if "=" in part
    )
    if "attribute" in series.mbean or keys.get("name") is None or "-" in keys["type"] or "-" in keys["name"]:
        return  # JMX attributes, whose names the exporter makes of the attribute
    name = keys["name"]
    name = re.sub(r"PerSec$", "", name)
    name = re.sub(r"Percent$", "_Percent", name)
    expected = f"{domain.replace('.', '_')}_{keys['type']}_{name}".lower()
    assert series.name == expected
