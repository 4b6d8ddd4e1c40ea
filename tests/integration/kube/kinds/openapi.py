"""Objects as a server's published OpenAPI document allows them, cut down to the fields that a wire struct reads.

A wire struct names few of the hundreds of fields of a kind. Walking both together answers three questions at once: does
the server have each field that is read, which values may it send there, and does the struct take all of them.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from harness.cluster.cluster import Cluster
from trimtab.kube.rest.resources import Resource

Schema = Mapping[str, Any]
Value = st.SearchStrategy[Any]

_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_ALWAYS_SENT = {"metadata", "name", "uid", "resourceVersion", "creationTimestamp"}
"""Fields that each object has although its schema does not require them: the server fills them in."""
_NEVER_EMPTY = {"containers"}
"""Required lists that the server's validation rejects when empty, although their schema allows it."""
_OPEN: Schema = {"x-kubernetes-preserve-unknown-fields": True}

quantities = st.builds(
    lambda number, suffix: f"{number}{suffix}",
    st.integers(0, 9_999),
    st.sampled_from(("", "m", "k", "M", "G", "Ki", "Mi", "Gi")),
)
names = st.text("abcdefghij-./", min_size=1, max_size=9)
times = st.integers(1_400_000_000, 4_000_000_000).map(lambda time: datetime.fromtimestamp(time, UTC))
_int_or_string: Value = st.integers(0, 99) | quantities
anything = st.recursive(
    st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)


class UnknownFieldError(AssertionError):
    """A wire struct reads a field that the server does not have."""


class Schemas:
    """The schemas of one API group and version, by the names that they refer to each other with."""

    def __init__(self, document: Schema) -> None:
        self._schemas: dict[str, Schema] = document["components"]["schemas"]

    @classmethod
    def published_schemas(cls, cluster: Cluster, resource: Resource) -> "Schemas":
        """Return the schemas that the API server publishes for a resource's group."""
        group = f"apis/{resource.api_version}" if resource.group else f"api/{resource.api_version}"
        return cls(cluster.call("GET", f"/openapi/v3/{group}"))

    def kind(self, resource: Resource) -> Schema:
        """The schema of a resource's objects."""
        wanted = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        return next(
            schema
            for schema in self._schemas.values()
            if wanted in schema.get("x-kubernetes-group-version-kind", ())
        )

    def values(self, schema: Schema, kind: Any = None, *, path: str = "") -> Value:
        """Return what a server may send: only the fields that a type reads, or all without a type."""
        return self._values(schema, None if kind is None else inspect.type_info(kind), path)

    def _values(self, schema: Schema, kind: inspect.Type | None, path: str) -> Value:
        kind = _plain(kind)
        name, schema = self._resolve(schema)
        if name == _QUANTITY:
            return quantities
        if name == _METADATA or "x-kubernetes-group-version-kind" in schema:
            schema = {**schema, "required": [*schema.get("required", ()), *_ALWAYS_SENT]}
        match schema.get("type"):
            case "object":
                return self._object(schema, kind, path)
            case "array":
                each = self._values(schema["items"], _item(kind), f"{path}[]")
                return st.lists(each, max_size=min(3, schema.get("maxItems", 3)))
        return _scalar(schema)

    def _object(self, schema: Schema, kind: inspect.Type | None, path: str) -> Value:
        properties: Mapping[str, Schema] = schema.get("properties", {})
        if not properties:
            more = schema.get("additionalProperties")
            inner = more if isinstance(more, Mapping) else _OPEN
            each = self._values(inner, kind.value_type if isinstance(kind, inspect.DictType) else None, path)
            keys = names | st.sampled_from(("cpu", "memory", "pods", "requests.cpu", "limits.memory"))
            return st.dictionaries(keys, each, max_size=3)
        if kind is None:
            read: dict[str, inspect.Type | None] = dict.fromkeys(properties)
        elif isinstance(kind, inspect.DictType):
            read = dict.fromkeys(properties, kind.value_type)
        else:
            read = {field.encode_name: field.type for field in _fields(kind)}
        for field in read:
            if field not in properties:
                raise UnknownFieldError(f"{path}.{field} is read, and the server has no such field")
        required = set(schema.get("required", ()))
        parts = {
            field: self._values(properties[field], each, f"{path}.{field}") for field, each in read.items()
        }
        for field in required & parts.keys() - _NEVER_EMPTY:
            if self._resolve(properties[field])[1].get("type") == "array":
                # Go writes an empty list that is not to be left out as null.
                parts[field] |= st.none()
        return st.fixed_dictionaries(
            {field: each for field, each in parts.items() if field in required},
            optional={field: each for field, each in parts.items() if field not in required},
        )

    def _resolve(self, schema: Schema) -> tuple[str, Schema]:
        """Return a schema behind its references, and the name of the last one."""
        name = ""
        while reference := schema.get("$ref") or next(
            (each["$ref"] for each in schema.get("allOf", ()) if "$ref" in each), ""
        ):
            name = reference.rpartition("/")[2]
            schema = self._schemas[name]
        return name, schema


def assert_reads(kind: Any, sent: Any, *, path: str = "") -> None:
    """Decode what was sent and find each value of it again, raw parts by the type that they are declared to hold."""
    decoded = msgspec.json.decode(msgspec.json.encode(sent), type=kind)
    for where, read, value in _leaves(decoded, inspect.type_info(kind), sent, path):
        assert read == value, f"{where} is read as {read!r}, and was sent as {value!r}"


def _leaves(read: Any, kind: inspect.Type | None, sent: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Each scalar that was sent, with what it was read as."""
    if isinstance(read, msgspec.Raw):
        if (held := _held(kind)) is not None:
            assert_reads(held, msgspec.json.decode(read), path=path)
        return
    kind = _plain(kind)
    if sent is None:
        yield path, bool(read), False
    elif isinstance(read, msgspec.Struct):
        for field in _fields(kind):
            if field.encode_name in sent:
                yield from _leaves(
                    getattr(read, field.name),
                    field.type,
                    sent[field.encode_name],
                    f"{path}.{field.encode_name}",
                )
    elif isinstance(read, list | tuple):
        yield path, len(read), len(sent)
        for n, (each, value) in enumerate(zip(read, sent, strict=True)):
            yield from _leaves(each, _item(kind), value, f"{path}[{n}]")
    elif isinstance(read, datetime):
        yield path, read, datetime.fromisoformat(sent)
    else:
        yield path, read, sent


def _scalar(schema: Schema) -> Value:
    """Return a value of a scalar schema, or of one without a type."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    least, most = schema.get("minimum"), schema.get("maximum")
    bits = 31 if schema.get("format") == "int32" else 53
    match schema.get("type"), schema.get("format"):
        case _, "int-or-string":
            found = _int_or_string
        case "string", "date-time":
            found = times.map(lambda time: time.isoformat().replace("+00:00", "Z"))
        case "string", _:
            found = names
        case "integer", _:
            found = st.integers(
                -(1 << bits) if least is None else int(least), (1 << bits) - 1 if most is None else int(most)
            )
        case "number", _:
            found = st.floats(-1e9 if least is None else least, 1e9 if most is None else most)
        case "boolean", _:
            found = st.booleans()
        case _:
            found = _int_or_string if schema.get("x-kubernetes-int-or-string") else anything
    return found


def _plain(kind: inspect.Type | None) -> inspect.Type | None:
    """A type without what may surround it: a declaration, or that there may be none."""
    if isinstance(kind, inspect.Metadata):
        held = _held(kind)
        return _plain(inspect.type_info(held) if held is not None else kind.type)
    if isinstance(kind, inspect.UnionType):
        kinds = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
        return _plain(kinds[0]) if len(kinds) == 1 else None
    return None if isinstance(kind, inspect.AnyType | inspect.RawType) else kind


def _held(kind: inspect.Type | None) -> Any:
    return (kind.extra or {}).get("decoded_as") if isinstance(kind, inspect.Metadata) else None


def _fields(kind: inspect.Type | None) -> tuple[inspect.Field, ...]:
    assert isinstance(kind, inspect.StructType), f"an object is read as {kind}"
    return kind.fields


def _item(kind: inspect.Type | None) -> inspect.Type | None:
    match kind:
        case inspect.ListType() | inspect.VarTupleType():
            return kind.item_type
    return None
