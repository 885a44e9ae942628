"""Records of the model as a source decodes them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from minikafka.spark.source.datasource import SUMMED_COLUMNS
from minikafka.spark.source.decode import RECORD_SCHEMA, arrow_schema
from tests.spark.analysis_model import Record


def record_batch(records: Sequence[Record]) -> pa.RecordBatch:
    """The columns that are added up."""
    schema = arrow_schema(SUMMED_COLUMNS, RECORD_SCHEMA)
    arrays = [pa.array([getattr(each, field.name) for each in records], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
