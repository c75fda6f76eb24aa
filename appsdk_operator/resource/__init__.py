"""Kubernetes objects: kinds, metadata, JSON and YAML, selectors and patches.

The bytes of a client or a watch become an :class:`Object`, an immutable view that threads and
caches share. :meth:`Object.mutable_copy` makes a :class:`MutableObject`, which can be changed and
sent. Nothing here does I/O or starts a thread.

Guarantees:
    * A round trip preserves unknown fields, the order of keys and the value of every number.
    * Reading from any thread is safe; an attempt to change an :class:`Object` raises
      :class:`ReadOnlyError`, which says what to do instead.

Caveats:
    * Labels, spec, status and other fields are decoded at each access.

Errors:
    :class:`DecodeError` (with :class:`WrongKindError`), :class:`EncodeError`,
    :class:`ReadOnlyError`.
"""

from typing import TYPE_CHECKING

from appsdk_operator._lazy import homes, loader
from appsdk_operator.resource._class_fields import FieldName as FieldName
from appsdk_operator.resource._codec import PARTIAL_METADATA_KIND as PARTIAL_METADATA_KIND
from appsdk_operator.resource._codec import DecodeError as DecodeError
from appsdk_operator.resource._codec import EncodeError as EncodeError
from appsdk_operator.resource._codec import MetadataOnlyError as MetadataOnlyError
from appsdk_operator.resource._codec import WrongKindError as WrongKindError
from appsdk_operator.resource._codec import decode as decode_json
from appsdk_operator.resource._codec import encode as encode_json
from appsdk_operator.resource._codec import members as members
from appsdk_operator.resource._conversion import IntoObject as IntoObject
from appsdk_operator.resource._conversion import ObjectWrapper as ObjectWrapper
from appsdk_operator.resource._conversion import as_object as as_object
from appsdk_operator.resource._field_errors import OMITTED as OMITTED
from appsdk_operator.resource._field_errors import FieldError as FieldError
from appsdk_operator.resource._field_errors import FieldPath as FieldPath
from appsdk_operator.resource._field_errors import field as field
from appsdk_operator.resource._field_errors import joined_errors as joined_errors
from appsdk_operator.resource._field_names import check_expression as check_expression
from appsdk_operator.resource._field_names import wire_path as wire_path
from appsdk_operator.resource._field_names import wire_steps as wire_steps
from appsdk_operator.resource._field_values import FIELD_VALUES as FIELD_VALUES
from appsdk_operator.resource._field_values import field_text as field_text
from appsdk_operator.resource._field_values import selected_values as selected_values
from appsdk_operator.resource._frozen import ReadOnlyError as ReadOnlyError
from appsdk_operator.resource._frozen import explain_frozen as explain_frozen
from appsdk_operator.resource._go_text import Verbatim as Verbatim
from appsdk_operator.resource._go_text import go_float as go_float
from appsdk_operator.resource._go_text import go_json as go_json
from appsdk_operator.resource._go_text import go_quote as go_quote
from appsdk_operator.resource._go_text import go_value as go_value
from appsdk_operator.resource._json_diff import json_diff as json_diff
from appsdk_operator.resource._json_parts import MAX_LEVELS as MAX_LEVELS
from appsdk_operator.resource._json_parts import TOO_DEEP as TOO_DEEP
from appsdk_operator.resource._json_parts import is_deeper as is_deeper
from appsdk_operator.resource._kind import Kind as Kind
from appsdk_operator.resource._kind import Scope as Scope
from appsdk_operator.resource._kind import check_kind as check_kind
from appsdk_operator.resource._list_watch import ListPage as ListPage
from appsdk_operator.resource._list_watch import Undecodable as Undecodable
from appsdk_operator.resource._list_watch import UndecodableEvent as UndecodableEvent
from appsdk_operator.resource._list_watch import WatchEvent as WatchEvent
from appsdk_operator.resource._list_watch import WatchEventType as WatchEventType
from appsdk_operator.resource._list_watch import decode_list as decode_list
from appsdk_operator.resource._list_watch import decode_watch_event as decode_watch_event
from appsdk_operator.resource._list_watch import decode_watch_events as decode_watch_events
from appsdk_operator.resource._lossless import lost_parts as lost_parts
from appsdk_operator.resource._lossless import with_defaults as with_defaults
from appsdk_operator.resource._names import check_followed_namespace as check_followed_namespace
from appsdk_operator.resource._names import check_namespace_name as check_namespace_name
from appsdk_operator.resource._names import check_path_segment as check_path_segment
from appsdk_operator.resource._object import AnyObject as AnyObject
from appsdk_operator.resource._object import MutableObject as MutableObject
from appsdk_operator.resource._object import Object as Object
from appsdk_operator.resource._object import ObjectKey as ObjectKey
from appsdk_operator.resource._object import OwnerReference as OwnerReference
from appsdk_operator.resource._object import PartError as PartError
from appsdk_operator.resource._object import as_transformed as as_transformed
from appsdk_operator.resource._object import is_older_version as is_older_version
from appsdk_operator.resource._object import parse_time as parse_time
from appsdk_operator.resource._patch_types import JsonPatch as JsonPatch
from appsdk_operator.resource._patch_types import MergePatch as MergePatch
from appsdk_operator.resource._patch_types import Patch as Patch
from appsdk_operator.resource._patch_types import StrategicMergePatch as StrategicMergePatch
from appsdk_operator.resource._patch_types import patch_body as patch_body
from appsdk_operator.resource._patches import PatchError as PatchError
from appsdk_operator.resource._patches import PatchTestFailed as PatchTestFailed
from appsdk_operator.resource._patches import apply_json_patch as apply_json_patch
from appsdk_operator.resource._patches import apply_merge_patch as apply_merge_patch
from appsdk_operator.resource._patches import create_merge_patch as create_merge_patch
from appsdk_operator.resource._schema.columns import PrinterColumn as PrinterColumn
from appsdk_operator.resource._schema.columns import Scale as Scale
from appsdk_operator.resource._schema.crd import (
    custom_resource_definition as custom_resource_definition,
)
from appsdk_operator.resource._schema.descriptions import without_markup as without_markup
from appsdk_operator.resource._schema.markers import Duration as Duration
from appsdk_operator.resource._schema.markers import EmbeddedObject as EmbeddedObject
from appsdk_operator.resource._schema.markers import Format as Format
from appsdk_operator.resource._schema.markers import Immutable as Immutable
from appsdk_operator.resource._schema.markers import Int32 as Int32
from appsdk_operator.resource._schema.markers import Int64 as Int64
from appsdk_operator.resource._schema.markers import IntOrString as IntOrString
from appsdk_operator.resource._schema.markers import ListType as ListType
from appsdk_operator.resource._schema.markers import MapType as MapType
from appsdk_operator.resource._schema.markers import PreserveUnknown as PreserveUnknown
from appsdk_operator.resource._schema.markers import Quantity as Quantity
from appsdk_operator.resource._schema.markers import Rule as Rule
from appsdk_operator.resource._schema.markers import Schema as Schema
from appsdk_operator.resource._schema.markers import Time as Time
from appsdk_operator.resource._selectors import FieldSelection as FieldSelection
from appsdk_operator.resource._selectors import FieldSelector as FieldSelector
from appsdk_operator.resource._selectors import LabelSelection as LabelSelection
from appsdk_operator.resource._selectors import LabelSelector as LabelSelector
from appsdk_operator.resource._selectors import SelectorError as SelectorError
from appsdk_operator.resource._selectors import field_selector_of as field_selector_of
from appsdk_operator.resource._selectors import label_selector_of as label_selector_of
from appsdk_operator.resource._stream_lines import Lines as Lines
from appsdk_operator.resource._versions import ConversionError as ConversionError
from appsdk_operator.resource._versions import Converter as Converter
from appsdk_operator.resource._versions import Spoke as Spoke
from appsdk_operator.resource._versions import Versions as Versions
from appsdk_operator.resource._versions import convert_parts as convert_parts

# Imported on first use: PyYAML takes longer to import than all the rest.
if TYPE_CHECKING:
    from appsdk_operator.resource._strategic import BUILTIN_MERGE_KEYS as BUILTIN_MERGE_KEYS
    from appsdk_operator.resource._strategic import DirectiveError as DirectiveError
    from appsdk_operator.resource._strategic import MergeKeyError as MergeKeyError
    from appsdk_operator.resource._strategic import MergeRule as MergeRule
    from appsdk_operator.resource._strategic import MergeRules as MergeRules
    from appsdk_operator.resource._strategic import OrderError as OrderError
    from appsdk_operator.resource._strategic import (
        apply_strategic_merge_patch as apply_strategic_merge_patch,
    )
    from appsdk_operator.resource._yaml import dump_yaml as dump_yaml
    from appsdk_operator.resource._yaml import load_first as load_first
    from appsdk_operator.resource._yaml import load_yaml as load_yaml

_MODULES = {
    "resource._strategic": (
        "BUILTIN_MERGE_KEYS",
        "DirectiveError",
        "MergeKeyError",
        "MergeRule",
        "MergeRules",
        "OrderError",
        "apply_strategic_merge_patch",
    ),
    "resource._yaml": ("dump_yaml", "load_first", "load_yaml"),
}
_HOMES = homes(_MODULES)

# Names that are imported above but not listed here are for the other rooms of the kit.
__all__ = [
    "OMITTED",
    "AnyObject",
    "ConversionError",
    "Converter",
    "DecodeError",
    "Duration",
    "EmbeddedObject",
    "EncodeError",
    "FieldError",
    "FieldName",
    "FieldPath",
    "FieldSelection",
    "FieldSelector",
    "Format",
    "Immutable",
    "Int32",
    "Int64",
    "IntOrString",
    "IntoObject",
    "JsonPatch",
    "Kind",
    "LabelSelection",
    "LabelSelector",
    "Lines",
    "ListPage",
    "ListType",
    "MapType",
    "MergePatch",
    "MetadataOnlyError",
    "MutableObject",
    "Object",
    "ObjectKey",
    "ObjectWrapper",
    "OwnerReference",
    "Patch",
    "PatchError",
    "PatchTestFailed",
    "PreserveUnknown",
    "PrinterColumn",
    "Quantity",
    "ReadOnlyError",
    "Rule",
    "Scale",
    "Schema",
    "Scope",
    "SelectorError",
    "Spoke",
    "StrategicMergePatch",
    "Time",
    "Undecodable",
    "UndecodableEvent",
    "Versions",
    "WatchEvent",
    "WatchEventType",
    "WrongKindError",
    "apply_json_patch",
    "apply_merge_patch",
    "as_object",
    "convert_parts",
    "create_merge_patch",
    "custom_resource_definition",
    "decode_json",
    "decode_list",
    "decode_watch_event",
    "decode_watch_events",
    "dump_yaml",
    "encode_json",
    "field",
    "is_older_version",
    "load_yaml",
    "parse_time",
]

if not TYPE_CHECKING:  # a type checker would accept any name
    __getattr__ = loader(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
