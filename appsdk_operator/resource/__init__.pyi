from appsdk_operator.resource._typed.class_fields import (
    FieldName as FieldName,
)
from appsdk_operator.resource._codec import (
    DecodeError as DecodeError,
    EncodeError as EncodeError,
    MetadataOnlyError as MetadataOnlyError,
    WrongKindError as WrongKindError,
)
from appsdk_operator.resource._conversion import (
    IntoObject as IntoObject,
    ObjectWrapper as ObjectWrapper,
    as_object as as_object,
)
from appsdk_operator.resource._typed.errors import (
    OMITTED as OMITTED,
    FieldError as FieldError,
)
from appsdk_operator.resource._field_paths import (
    FieldPath as FieldPath,
    field as field,
)
from appsdk_operator.resource._filters import (
    AnnotationFilter as AnnotationFilter,
    ChangeFilter as ChangeFilter,
    Filter as Filter,
    annotation as annotation,
    labels as labels,
)
from appsdk_operator.resource._json.frozen import (
    ReadOnlyError as ReadOnlyError,
)
from appsdk_operator.resource._kind import (
    Kind as Kind,
    Scope as Scope,
)
from appsdk_operator.resource._list_watch import (
    WatchEventType as WatchEventType,
    decode_watch_event as decode_watch_event,
    decode_watch_events as decode_watch_events,
)
from appsdk_operator.resource._object import (
    MutableObject as MutableObject,
    Object as Object,
    ObjectKey as ObjectKey,
)
from appsdk_operator.resource._patch_types import (
    JsonPatch as JsonPatch,
    MergePatch as MergePatch,
    StrategicMergePatch as StrategicMergePatch,
)
from appsdk_operator.resource._patches.apply import (
    PatchError as PatchError,
    PatchTestFailed as PatchTestFailed,
)
from appsdk_operator.resource._schema.columns import (
    PrinterColumn as PrinterColumn,
    Scale as Scale,
)
from appsdk_operator.resource._schema.crd import (
    custom_resource_definition as custom_resource_definition,
)
from appsdk_operator.resource._schema.markers import (
    Duration as Duration,
    EmbeddedObject as EmbeddedObject,
    Format as Format,
    Immutable as Immutable,
    Int32 as Int32,
    Int64 as Int64,
    IntOrString as IntOrString,
    ListType as ListType,
    MapType as MapType,
    PreserveUnknown as PreserveUnknown,
    Quantity as Quantity,
    Rule as Rule,
    Schema as Schema,
    Time as Time,
)
from appsdk_operator.resource._selectors import (
    FieldSelector as FieldSelector,
    LabelSelector as LabelSelector,
    SelectorError as SelectorError,
)
from appsdk_operator.resource._json.lines import (
    Lines as Lines,
)
from appsdk_operator.resource._versions import (
    ConversionError as ConversionError,
    Converter as Converter,
    Spoke as Spoke,
    Versions as Versions,
    convert_parts as convert_parts,
)
from appsdk_operator.resource._yaml import (
    load_yaml as load_yaml,
)

"""For other packages: not part of the public surface."""

from appsdk_operator.resource import (
    kinds as kinds,
)
from appsdk_operator.resource._codec import (
    PARTIAL_METADATA_KIND as PARTIAL_METADATA_KIND,
    decode_json as decode_json,
    encode_json as encode_json,
    members as members,
)
from appsdk_operator.resource._typed.errors import (
    joined_errors as joined_errors,
)
from appsdk_operator.resource._filter_checks import (
    check_fields as check_fields,
    is_builtin as is_builtin,
)
from appsdk_operator.resource._filters import (
    HIDDEN_FIELDS as HIDDEN_FIELDS,
    FilterExpression as FilterExpression,
    FilterMetadata as FilterMetadata,
    FilterScope as FilterScope,
    FilterTree as FilterTree,
    When as When,
    Where as Where,
    change_filter_of as change_filter_of,
    filter_of as filter_of,
    refuse_unfinished as refuse_unfinished,
)
from appsdk_operator.resource._json.values import (
    equal_numbers as equal_numbers,
)
from appsdk_operator.resource._field_names import (
    check_expression as check_expression,
    wire_path as wire_path,
    wire_steps as wire_steps,
)
from appsdk_operator.resource._field_values import (
    FIELD_VALUES as FIELD_VALUES,
    field_text as field_text,
    selected_values as selected_values,
)
from appsdk_operator.resource._json.frozen import (
    explain_frozen as explain_frozen,
)
from appsdk_operator.resource._typed.go_text import (
    Verbatim as Verbatim,
    go_float as go_float,
    go_json as go_json,
    go_quote as go_quote,
    go_value as go_value,
)
from appsdk_operator.resource._json.diff import (
    json_diff as json_diff,
)
from appsdk_operator.resource._json.pointers import (
    json_pointer as json_pointer,
    pointer_steps as pointer_steps,
)
from appsdk_operator.resource._json.parts import (
    MAX_LEVELS as MAX_LEVELS,
    TOO_DEEP as TOO_DEEP,
    is_deeper as is_deeper,
)
from appsdk_operator.resource._kind import (
    check_kind as check_kind,
    group_kind as group_kind,
)
from appsdk_operator.resource._list_watch import (
    ListPage as ListPage,
    Undecodable as Undecodable,
    UndecodableEvent as UndecodableEvent,
    WatchEvent as WatchEvent,
    decode_list as decode_list,
)
from appsdk_operator.resource._lossless import (
    lost_parts as lost_parts,
    with_defaults as with_defaults,
)
from appsdk_operator.resource._names import (
    check_followed_namespace as check_followed_namespace,
    check_namespace_name as check_namespace_name,
    check_path_segment as check_path_segment,
)
from appsdk_operator.resource._namespaces import (
    NamespaceSelector as NamespaceSelector,
    namespace_selector_of as namespace_selector_of,
)
from appsdk_operator.resource._object import (
    AnyObject as AnyObject,
    OwnerReference as OwnerReference,
    PartError as PartError,
    as_transformed as as_transformed,
    every_part_error as every_part_error,
    is_older_version as is_older_version,
    parse_time as parse_time,
)
from appsdk_operator.resource._patch import (
    Patch as Patch,
)
from appsdk_operator.resource._patch_types import (
    patch_body as patch_body,
)
from appsdk_operator.resource._patches.apply import (
    apply_json_patch as apply_json_patch,
    apply_merge_patch as apply_merge_patch,
    create_merge_patch as create_merge_patch,
)
from appsdk_operator.resource._schema.descriptions import (
    without_markup as without_markup,
)
from appsdk_operator.resource._selections import (
    FieldSelection as FieldSelection,
    LabelSelection as LabelSelection,
)
from appsdk_operator.resource._selector_options import (
    field_selector_of as field_selector_of,
    label_selector_of as label_selector_of,
)
from appsdk_operator.resource._patches.strategic import (
    BUILTIN_MERGE_KEYS as BUILTIN_MERGE_KEYS,
    DirectiveError as DirectiveError,
    MergeKeyError as MergeKeyError,
    MergeRule as MergeRule,
    MergeRules as MergeRules,
    OrderError as OrderError,
    apply_strategic_merge_patch as apply_strategic_merge_patch,
)
from appsdk_operator.resource._patches.three_way import (
    MergeClash as MergeClash,
    merge_changes as merge_changes,
)
from appsdk_operator.resource._yaml import (
    dump_yaml as dump_yaml,
    load_first as load_first,
)
