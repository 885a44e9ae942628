"""Dashboards and rules for minikafka, written in Python and kept as files.

``python -m grafana.generator`` writes ``grafana/dashboards/*.json`` and ``grafana/prometheus/rules.yml``; a
test holds the committed files equal to what is generated. So the files are not edited by hand, and a change
of a query is a line in a diff of Python.
"""
