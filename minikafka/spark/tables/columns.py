"""The columns of a table: what it has, what the records of a run want, and what of these does not fit.

A table has the columns of an export: ``key`` and ``value`` as they are decoded (a struct where there is a
schema), ``partition``, ``offset``, ``timestamp``, ``timestampType`` and ``headers``.

What a new schema may do to a table is what Iceberg's schema evolution allows: add fields, at any depth, and
widen int to bigint, float to double and the precision of a decimal. What is narrower than the table's column
is written as the table's type. A field that the schema drops stays, and is null from then on. A field that
was renamed keeps its column where the schema says what it was: the number of a Protobuf field, an alias of
an Avro field.

All else does not fit. A record that has a value in such a field goes to the errors table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from minikafka.spark.runtime.session import JobError

Path = tuple[str, ...]
"""A field by the names from the top; what is in a list or a map is below the list's or the map's name."""

ERRORS_SCHEMA = StructType(
    [
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("reason", StringType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
    ]
)
"""Of an errors table: which record, why, and the bytes as the log has them."""

_PLAIN = (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    TimestampNTZType,
    TimestampType,
)

FIELD_ID = b"PARQUET:field_id"
"""Where pyarrow keeps the id of a Parquet field."""


class Misfit(NamedTuple):
    """A field that cannot be the table's column."""

    path: Path
    reason: str


def table_type(found: DataType, path: Path = (), *, is_wide: bool = False) -> Any:
    """``found`` as a table has it: all may be null, and no metadata.

    Args:
        is_wide: int as bigint and float as double, for a table that cannot widen them later.

    Raises:
        JobError: no table has such a type; names the field.
    """
    match found:
        case StructType():
            fields = [
                StructField(each.name, table_type(each.dataType, (*path, each.name), is_wide=is_wide))
                for each in found.fields
            ]
            return StructType(fields)
        case ArrayType():
            return ArrayType(table_type(found.elementType, path, is_wide=is_wide))
        case MapType():
            key = table_type(found.keyType, path, is_wide=is_wide)
            return MapType(key, table_type(found.valueType, path, is_wide=is_wide))
        case DecimalType():
            return DecimalType(found.precision, found.scale)
        case StringType() | CharType() | VarcharType():
            return StringType()
        case ByteType() | ShortType() | IntegerType():
            return LongType() if is_wide else IntegerType()
        case FloatType():
            return DoubleType() if is_wide else FloatType()
    if isinstance(found, _PLAIN):
        return type(found)()
    raise JobError(f"{'.'.join(path)}: a table has no column of the type {found.simpleString()}")


def wanted_columns(schema: StructType, names: Sequence[str], *, is_wide: bool) -> StructType:
    """The columns ``names`` of a frame, as a table has them. Only keys and values are made wide."""
    return StructType(
        [
            StructField(
                name,
                table_type(schema[name].dataType, (name,), is_wide=is_wide and name in ("key", "value")),
            )
            for name in names
        ]
    )


def merged(have: StructType, wanted: StructType, *, widens: bool) -> tuple[StructType, list[Misfit]]:
    """The type of a table of ``have`` that takes records of ``wanted``, and what of these it cannot hold.

    Args:
        widens: whether the table can widen its columns.
    """
    misfits: dict[Path, Misfit] = {}
    return _merged_structs(have, wanted, (), widens, misfits), list(misfits.values())


def _merged_structs(
    have: StructType, wanted: StructType, path: Path, widens: bool, misfits: dict[Path, Misfit]
) -> StructType:
    new = {each.name: each.dataType for each in wanted.fields}
    fields = []
    for each in have.fields:
        found = each.dataType
        if each.name in new:
            found = _merged(found, new.pop(each.name), (*path, each.name), widens, misfits)
        fields.append(StructField(each.name, found))
    return StructType([*fields, *(StructField(name, found) for name, found in new.items())])


def _merged(
    have: DataType, wanted: DataType, path: Path, widens: bool, misfits: dict[Path, Misfit]
) -> DataType:
    if isinstance(have, StructType) and isinstance(wanted, StructType):
        return _merged_structs(have, wanted, path, widens, misfits)
    if isinstance(have, ArrayType) and isinstance(wanted, ArrayType):
        return ArrayType(_below(have.elementType, wanted.elementType, path, widens, misfits))
    if isinstance(have, MapType) and isinstance(wanted, MapType) and have.keyType == wanted.keyType:
        return MapType(have.keyType, _below(have.valueType, wanted.valueType, path, widens, misfits))
    if have == wanted or is_widened(wanted, have):
        return have
    if widens and is_widened(have, wanted):
        return wanted
    name, is_, was = ".".join(path), wanted.simpleString(), have.simpleString()
    misfits[path] = Misfit(path, f"{name} is {is_}, and the column of the table is {was}")
    return have


def _below(
    have: DataType, wanted: DataType, path: Path, widens: bool, misfits: dict[Path, Misfit]
) -> DataType:
    """Of what is in a list or a map: where it does not fit, the whole list does not."""
    inside: dict[Path, Misfit] = {}
    found = _merged(have, wanted, path, widens, inside)
    if inside:
        first = next(iter(inside.values()))
        misfits[path] = Misfit(path, first.reason)
    return found


def is_widened(narrow: DataType, wide: DataType) -> bool:
    """Whether every ``narrow`` is a ``wide``."""
    match narrow, wide:
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
            return True
        case DecimalType(), DecimalType():
            return narrow.scale == wide.scale and narrow.precision < wide.precision
    return False


def misfit_reason(misfits: Sequence[Misfit]) -> Column:
    """Why a record does not fit, or null."""
    reasons = [F.when(_value_at(each.path).isNotNull(), F.lit(each.reason)) for each in misfits]
    return F.coalesce(*reasons, F.lit(None).cast("string"))


def _value_at(path: Path) -> Column:
    found = F.col(path[0])
    for name in path[1:]:
        found = found.getField(name)
    return found


class Rename(NamedTuple):
    """A column that takes another name."""

    path: Path
    """Where it is, under the old name."""
    name: str
    """The new one, in the same struct."""


def renames(have: StructType, wanted: StructType, former_names: Mapping[Path, Sequence[str]]) -> list[Rename]:
    """Fields that are new by name and that the table has under another.

    Args:
        former_names: what the schema says that a field was called; paths are of ``wanted``.
    """
    return list(_renames(have, wanted, former_names, (), ()))


def _renames(
    have: DataType,
    wanted: DataType,
    former_names: Mapping[Path, Sequence[str]],
    old: Path,
    new: Path,
) -> Iterator[Rename]:
    if isinstance(have, ArrayType) and isinstance(wanted, ArrayType):
        yield from _renames(have.elementType, wanted.elementType, former_names, old, new)
    if isinstance(have, MapType) and isinstance(wanted, MapType):
        yield from _renames(have.valueType, wanted.valueType, former_names, old, new)
    if not (isinstance(have, StructType) and isinstance(wanted, StructType)):
        return
    for each in wanted.fields:
        path = (*new, each.name)
        found = each.name
        if found not in have.names:
            former = [
                name for name in former_names.get(path, ()) if name in have.names and name not in wanted.names
            ]
            if not former:
                continue
            found = former[0]
            yield Rename((*old, found), each.name)
        yield from _renames(have[found].dataType, each.dataType, former_names, (*old, found), path)


def renamed(have: StructType, changes: Sequence[Rename]) -> StructType:
    """``have`` with new names."""
    found: StructType = _renamed(have, {each.path: each.name for each in changes}, ())
    return found


def _renamed(have: Any, names: Mapping[Path, str], path: Path) -> Any:
    match have:
        case StructType():
            return StructType(
                [
                    StructField(
                        names.get((*path, each.name), each.name),
                        _renamed(each.dataType, names, (*path, each.name)),
                    )
                    for each in have.fields
                ]
            )
        case ArrayType():
            return ArrayType(_renamed(have.elementType, names, path))
        case MapType():
            return MapType(have.keyType, _renamed(have.valueType, names, path))
    return have


def as_arrow(columns: StructType) -> pa.Schema:
    """Arrow's schema, without field ids."""
    return to_arrow_schema(columns, timezone="UTC")


def as_spark(schema: pa.Schema) -> StructType:
    """The Spark type of a table's Arrow schema."""
    return StructType(
        [
            StructField(each.name, table_type(each.dataType, (each.name,)))
            for each in from_arrow_schema(pa.schema([small_field(field) for field in schema]))
        ]
    )


def small_field(field: pa.Field) -> pa.Field:
    """Without Arrow's large types, which Spark does not know, and with its metadata: field ids."""
    return field.with_type(_small(field.type))


def _small(found: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(found) or pa.types.is_string_view(found):
        return pa.string()
    if pa.types.is_large_binary(found) or pa.types.is_binary_view(found):
        return pa.binary()
    if pa.types.is_list(found) or pa.types.is_large_list(found):
        return pa.list_(small_field(found.value_field))
    if pa.types.is_map(found):
        return pa.map_(small_field(found.key_field), small_field(found.item_field))
    if pa.types.is_struct(found):
        return pa.struct([small_field(found.field(index)) for index in range(found.num_fields)])
    return found


def projected(array: pa.Array, field: pa.Field, own: pa.Field | None = None) -> pa.Array:
    """``array`` as a column of ``field``: fields of structs in its order, those that lack are null.

    Args:
        own: the field of ``array``. Where both have field ids these say what belongs together, and names
            else.

    Raises:
        pyarrow.ArrowInvalid: a value does not fit.
    """
    wanted = field.type
    if pa.types.is_struct(wanted) and pa.types.is_struct(array.type):
        return _projected_struct(array, wanted, own.type if own is not None else array.type)
    if pa.types.is_list(wanted) and (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        inner = own.type.value_field if own is not None else array.type.value_field
        values = projected(array.values, wanted.value_field, inner)
        offsets = array.offsets.cast(pa.int32())
        if array.offset:
            return projected(_whole(array), field, own)
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(offsets, values, type=wanted, mask=mask)
    if pa.types.is_map(wanted) and pa.types.is_map(array.type):
        own_type = own.type if own is not None else array.type
        if array.offset:
            return projected(_whole(array), field, own)
        keys = projected(array.keys, wanted.key_field, own_type.key_field)
        items = projected(array.items, wanted.item_field, own_type.item_field)
        mask = array.is_null() if array.null_count else None
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=wanted, mask=mask)
    if array.null_count == len(array):
        return pa.nulls(len(array), wanted)
    return array if array.type == wanted else array.cast(wanted)


def _whole(array: pa.Array) -> pa.Array:
    """A slice as an array of its own: the children of a slice are those of the whole."""
    return array.take(pa.array(range(len(array)), pa.int64()))


def _projected_struct(array: pa.StructArray, wanted: pa.StructType, own: pa.StructType) -> pa.Array:
    there = {_identity(own.field(index)): index for index in range(own.num_fields)}
    names = {own.field(index).name: index for index in range(own.num_fields)}
    has_ids = any(isinstance(each, bytes) for each in there)
    flat = array.flatten()  # with the struct's own nulls
    columns = []
    for index in range(wanted.num_fields):
        each = wanted.field(index)
        identity = _identity(each)
        found = there.get(identity) if has_ids and isinstance(identity, bytes) else names.get(each.name)
        if found is None:
            columns.append(pa.nulls(len(array), each.type))
        else:
            columns.append(projected(flat[found], each, own.field(found)))
    fields = [wanted.field(index) for index in range(wanted.num_fields)]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)


def _identity(field: pa.Field) -> bytes | str:
    """Its field id, or its name."""
    found: bytes | None = (field.metadata or {}).get(FIELD_ID)
    return field.name if found is None else found


def projected_batch(batch: pa.RecordBatch, schema: pa.Schema, *, by_id: bool = False) -> pa.RecordBatch:
    """``batch`` with the columns of ``schema``."""
    there = {_identity(each) if by_id else each.name: index for index, each in enumerate(batch.schema)}
    columns = []
    for each in schema:
        index = there.get(_identity(each) if by_id else each.name)
        if index is None:
            columns.append(pa.nulls(batch.num_rows, each.type))
        else:
            own = batch.schema.field(index) if by_id else None
            columns.append(projected(batch.column(index), each, own))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
