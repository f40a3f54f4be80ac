"""The tables of Halide's serialisation (version 18, Halide 21), as data.

The names and their order follow `src/halide_ir.fbs` of Halide 21.0.0. A field is written
``name:kind``. `kind` is a scalar (``bool i8 u8 i32 i64 u64 f64``), ``string``, the name of
another table, ``Expr`` or ``Stmt`` for a union (which takes two slots, a type byte and an
offset), or one of these in brackets for a vector. A scalar may be missing and is then zero. Any
other field must be present unless it is marked with ``?``.
"""

from __future__ import annotations

from dataclasses import dataclass

# The format of Halide 21.0.0. Slots may change with every version of Halide.
SERIALIZATION_VERSION = "18.0.1"

SCALARS = frozenset("bool i8 u8 i32 i64 u64 f64".split())


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a table: its kind, whether it is a vector, and its slot in the vtable."""

    name: str
    kind: str
    vector: bool
    slot: int
    optional: bool = False


# Members in the order of their type codes, which start at 1.
UNIONS: dict[str, tuple[str, ...]] = {
    "Expr": tuple(
        "IntImm UIntImm FloatImm StringImm Cast Reinterpret Add Sub Mul Div Mod Min Max EQ NE "
        "LT LE GT GE And Or Not Select Load Ramp Broadcast Let Call Variable Shuffle "
        "VectorReduce UndefinedExpr".split()
    ),
    "Stmt": tuple(
        "LetStmt AssertStmt ProducerConsumer For Store Provide Allocate Free Realize Block "
        "IfThenElse Evaluate Prefetch Acquire Fork Atomic HoistedStorage UndefinedStmt".split()
    ),
}

BINARY = tuple("Add Sub Mul Div Mod Min Max EQ NE LT LE GT GE And Or".split())

CALL_TYPES = "Image Extern ExternCPlusPlus PureExtern Halide Intrinsic PureIntrinsic".split()
TYPE_CODES = ("int", "uint", "float", "handle", "bfloat")
DIM_TYPES = ("pure", "pure_rvar", "impure_rvar")
VECTOR_REDUCTIONS = "add saturating_add mul min max and or".split()
EXTERN_ARGUMENTS = "undefined func buffer expression image".split()

_SOURCE = """
Range min:Expr extent:Expr
LetStmt name:string value:Expr body:Stmt
AssertStmt condition:Expr message:Expr
ProducerConsumer name:string is_producer:bool body:Stmt
For name:string min:Expr extent:Expr for_type:i8 partition_policy:i8 device_api:i8 body:Stmt
ModulusRemainder modulus:i64 remainder:i64
Store name:string predicate:Expr value:Expr index:Expr param_name:string alignment:ModulusRemainder
Provide name:string values:[Expr] args:[Expr] predicate:Expr
Allocate name:string type:Type memory_type:i8 extents:[Expr] condition:Expr new_expr:Expr \
free_function:string padding:i32 body:Stmt
Free name:string
Realize name:string types:[Type] memory_type:i8 bounds:[Range] condition:Expr body:Stmt
Block first:Stmt rest:Stmt
IfThenElse condition:Expr then_case:Stmt else_case:Stmt
Evaluate value:Expr
PrefetchDirective name:string at:string from:string offset:Expr strategy:u8 param_name:string
Prefetch name:string types:[Type] bounds:[Range] prefetch:PrefetchDirective condition:Expr body:Stmt
Acquire semaphore:Expr count:Expr body:Stmt
Fork first:Stmt rest:Stmt
Atomic producer_name:string mutex_name:string body:Stmt
HoistedStorage name:string body:Stmt
UndefinedStmt
IntImm value:i64 type:Type
UIntImm value:u64 type:Type
FloatImm value:f64 type:Type
StringImm value:string
Cast value:Expr type:Type
Reinterpret value:Expr type:Type
Not a:Expr
Select condition:Expr true_value:Expr false_value:Expr
Load name:string predicate:Expr index:Expr image_name:string param_name:string \
alignment:ModulusRemainder type:Type
Ramp base:Expr stride:Expr lanes:i32
Broadcast value:Expr lanes:i32
Let name:string value:Expr body:Expr
Call name:string args:[Expr] call_type:u8 func_index:i32 value_index:i32 image_name:string \
param_name:string type:Type
ReductionVariable var:string min:Expr extent:Expr
ReductionDomain defined:bool domain:[ReductionVariable]? predicate:Expr? frozen:bool
Variable name:string type:Type param_name:string image_name:string reduction_domain:ReductionDomain
Shuffle vectors:[Expr] indices:[i32]
VectorReduce value:Expr reduction_op:u8 lanes:i32
UndefinedExpr
Type code:i8 bits:u8 lanes:i32
Bound var:string min:Expr extent:Expr modulus:Expr remainder:Expr
StorageDim var:string alignment:Expr bound:Expr fold_factor:Expr fold_forward:bool
LoopLevel func_name:string stage_index:i32 var_name:string is_rvar:bool locked:bool
WrapperRef func_name:string func_index:i32
FuncSchedule store_level:LoopLevel compute_level:LoopLevel hoist_storage_level:LoopLevel \
storage_dims:[StorageDim] bounds:[Bound] estimates:[Bound] wrappers:[WrapperRef] memory_type:i8 \
memoized:bool async:bool ring_buffer:Expr memoize_eviction_key:Expr
Specialization condition:Expr definition:Definition failure_message:string
Split old_var:string outer:string inner:string factor:Expr exact:bool tail:u8 split_type:u8
Dim var:string for_type:i8 device_api:i8 dim_type:u8 partition_policy:i8
FuseLoopLevel fuse_level:LoopLevel align_dimension_names:[string] align_strategies:[u8]
FusedPair func_1:string func_2:string stage_1:i32 stage_2:i32 var_name:string
StageSchedule rvars:[ReductionVariable] splits:[Split] dims:[Dim] prefetches:[PrefetchDirective] \
fuse_level:FuseLoopLevel fused_pairs:[FusedPair] touched:bool allow_race_conditions:bool \
atomic:bool override_atomic_associativity_test:bool
Definition is_init:bool predicate:Expr values:[Expr] args:[Expr] stage_schedule:StageSchedule \
specializations:[Specialization] source_location:string
BufferConstraint min:Expr extent:Expr stride:Expr min_estimate:Expr extent_estimate:Expr
Parameter defined:bool is_buffer:bool type:Type? dimensions:i32 name:string? host_alignment:i32 \
buffer_constraints:[BufferConstraint]? memory_type:i8 scalar_data:u64 scalar_default:Expr? \
scalar_min:Expr? scalar_max:Expr? scalar_estimate:Expr?
ExternalParameter is_buffer:bool type:Type dimensions:i32 name:string
ExternFuncArgument arg_type:u8 func_index:i32 buffer_name:string? expr:Expr? \
image_param_name:string?
BufferDimension min:i32 extent:i32 stride:i32
Buffer defined:bool name:string type:Type dimensions:i32 dims:[BufferDimension] data:[u8]
Func name:string origin_name:string output_types:[Type] required_types:[Type] required_dims:i32 \
args:[string] func_schedule:FuncSchedule init_def:Definition updates:[Definition] \
debug_file:string output_buffers_names:[string] extern_arguments:[ExternFuncArgument] \
extern_function_name:string extern_mangling:u8 extern_function_device_api:i8 \
extern_proxy_expr:Expr trace_loads:bool trace_stores:bool trace_realizations:bool \
trace_tags:[string] no_profiling:bool frozen:bool
Pipeline funcs:[Func] output_names:[string] requirements:[Stmt] func_names_in_order:[string] \
parameters:[Parameter] external_parameters:[ExternalParameter] buffers:[Buffer] \
halide_version:string serialization_version:string
"""


def _parse(source: str) -> dict[str, tuple[Field, ...]]:
    tables: dict[str, tuple[Field, ...]] = {}
    for line in source.strip().splitlines():
        table, *words = line.split()
        fields = []
        slot = 0
        for word in words:
            name, _, kind = word.partition(":")
            optional = kind.endswith("?")
            vector = kind.startswith("[")
            kind = kind.strip("[]?")
            # A union's type byte has the slot before its offset.
            slot += kind in UNIONS
            fields.append(Field(name, kind, vector, slot, optional))
            slot += 1
        tables[table] = tuple(fields)
    for table in BINARY:
        tables[table] = (Field("a", "Expr", False, 1), Field("b", "Expr", False, 3))
    return tables


TABLES: dict[str, tuple[Field, ...]] = _parse(_SOURCE)
